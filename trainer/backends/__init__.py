"""Execution backends, which build and run the graph of a mode on a kind of device."""
