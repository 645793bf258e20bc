"""Decides which requests the server accepts: admission control and API keys."""
