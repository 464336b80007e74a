"""The agent: a policy that answers with turns, and the loop that lets it act."""
