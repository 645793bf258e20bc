"""Translation of errors of a TPU run into errors about the user's program."""
