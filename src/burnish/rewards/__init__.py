"""Rewards: named streams over a finished episode, and the rule that combines them into one score."""
