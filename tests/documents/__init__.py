"""Tests that run the commands and the Python in README.md and docs/."""
