"""Burnish: post-train an open-weights language model into an agent, prove what changed, and serve it."""

__version__ = "0.1.0"
