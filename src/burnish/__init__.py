"""Burnish: post-train an open-weights language model into an agent, prove what changed, and serve it."""

import os

__version__ = "0.1.0"

# Idle OpenMP threads spin, by default for milliseconds, and so steal the core that a sandbox or another process
# needs; beside other load that made everything ten times slower. It must be set before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
