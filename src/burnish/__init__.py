"""Burnish: post-train an open-weights language model into an agent, prove what changed, and serve it.

What this file is: the version, and the one setting that must be made before torch is imported.
What it is not: it imports nothing of the package; import what you need from where it lives.
"""

import os

__version__ = "0.1.0"

# Idle OpenMP threads spin, by default for milliseconds, and so take the core that a sandbox or another process
# needs; beside other load that made training ten times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
