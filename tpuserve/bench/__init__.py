"""Measures how fast a model server answers: closed and open loops, stable windows, percentiles."""
