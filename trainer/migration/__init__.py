"""Static analysis of old programs: which TensorFlow names they use, and whether those exist here.

Programs are read and never run. No module here imports TensorFlow.
"""
