"""Translates errors of the TPU run into errors about the user's program."""
