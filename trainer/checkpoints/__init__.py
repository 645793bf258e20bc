"""Checkpoints, warm start and initial values."""
