"""Decides which requests the server accepts: limits, API keys, non-blocking threads."""
