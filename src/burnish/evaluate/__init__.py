"""What was reached, and what is proven of it: statistics, summaries, paired comparison, and the report.

What this package is not: it runs no episodes; it reads scored trajectories.
"""
