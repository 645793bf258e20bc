"""Runs the handlers of gRPC calls in threads."""
