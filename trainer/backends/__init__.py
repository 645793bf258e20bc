"""Execution backends: where the graph of a mode runs."""
