"""Forwards requests from the frontend processes to the engine process, which runs the models."""
