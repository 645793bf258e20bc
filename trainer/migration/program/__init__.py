"""The files of a program, and how the program is run."""
