"""Static analysis of old programs: which TensorFlow names they use, and whether these still exist.

Programs are read and never run. No module of this package imports TensorFlow.
"""
