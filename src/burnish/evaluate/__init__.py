"""What was reached, and what is proven of it: suites, statistics, summaries, paired comparison, the report.

What this package is not: it trains nothing, and no figure in it comes from anything but scored trajectories.
"""
