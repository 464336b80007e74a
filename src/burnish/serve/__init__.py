"""An OpenAI-compatible HTTP server for models that Burnish trained, and for any other model directory.

What this package is not: it trains nothing and never imports `train`; the two meet at a model directory.
"""
