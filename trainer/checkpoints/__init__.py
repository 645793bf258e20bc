"""Finds and checks checkpoints, creates the Saver of a run, and sets up warm starts."""
