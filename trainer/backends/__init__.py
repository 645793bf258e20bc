"""Execution backends, which build and run the graph of a mode (such as training) on a device."""
