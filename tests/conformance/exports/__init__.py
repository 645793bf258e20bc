"""Tests every kind of export against every promise; docs/conformance.md has the results."""
