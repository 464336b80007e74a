"""Where training batches come from: rolled out now, or recorded before."""
