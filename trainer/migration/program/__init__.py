"""The files, flags and launch command of a program."""
