"""Static analysis of old programs: the TensorFlow names that they use, and whether these exist.

Programs are read and never run. No module of this package imports TensorFlow.
"""
