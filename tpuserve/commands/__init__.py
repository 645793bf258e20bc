"""Implements the commands of the command line tool `tpuserve`, one module for each command.

A module declares the options of its command, calls the package that does the work, and prints the
result.
"""
