"""The other side of the comparisons; each file runs in .venv-peers, not in Burnish's environment."""
