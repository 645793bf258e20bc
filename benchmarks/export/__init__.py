"""Measures what makes exports."""
