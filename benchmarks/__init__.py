"""Measurements, each against a peer in the same run: `python -m benchmarks.<area> --json`."""
