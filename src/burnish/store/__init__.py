"""What is kept: the run directory, its checkpoints and their lineage, and trajectories as JSON.

What this package is not: it trains nothing and scores nothing; it writes so that a kill at any moment leaves
only what a resume may trust.
"""
