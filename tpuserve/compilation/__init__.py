"""Compiling a TPU metagraph ahead of time, by the TPU's own compiler, where there is no TPU.

`ahead.compile` does it. Nothing is imported here: the processes that hold the TPU compiler do
without TensorFlow.
"""
