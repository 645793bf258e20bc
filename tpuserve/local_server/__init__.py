"""Starts a model server in a separate process, which stops when this process ends."""
