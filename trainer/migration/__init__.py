"""Analyses old programs: which TensorFlow names they use, and which of these names still exist.

The programs are read, and never run. No module of this package imports TensorFlow.
"""
