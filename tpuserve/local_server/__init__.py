"""Starts a model server in a separate process, which never outlives this process."""
