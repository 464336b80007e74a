"""What happened, as it happens: the audit log, Prometheus metrics, and the live view in the terminal.

What this package is not: it keeps no results (`store` does) and judges nothing (`evaluate` does).
"""
