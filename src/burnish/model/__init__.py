"""The decoder, its weights on disk, and the renderer that turns messages into tokens."""
