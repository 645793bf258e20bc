"""Ahead-of-time compilation of a TPU metagraph with the TPU compiler, on a machine without a TPU.

The entry point is `tpuserve.compilation.aot.compile`. This package imports nothing, because the
worker processes that run the TPU compiler must not import TensorFlow.
"""
