"""Benchmarks of the functions that write exports."""
