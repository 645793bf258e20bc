"""Exports SavedModels for CPU and TPU, verifies their TPU metagraphs, and loads SavedModels.

Importing this package does not import TensorFlow. Importing `tpuserve.lowering` or
`tpuserve.export` does.
"""

from importlib.metadata import version

from tpuserve.devices import emulated_tpu

__version__ = version("tpuserve")
__all__ = ["__version__", "emulated_tpu"]
