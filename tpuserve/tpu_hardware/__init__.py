"""Finds the TPU chips of this machine and the processes that use them, without opening a TPU."""
