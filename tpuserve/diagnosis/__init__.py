"""Examines whether this machine can run TPU graphs, and says what to do if it cannot."""
