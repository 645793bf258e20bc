"""Benchmarks: programs that measure, and are no part of the installed packages."""
