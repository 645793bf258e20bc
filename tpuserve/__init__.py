"""Exports SavedModels for CPU and TPU, verifies the TPU metagraph without a TPU, and loads both.

The import of this package does not import TensorFlow. The imports of `tpuserve.lowering` and
`tpuserve.export` do.
"""

from importlib.metadata import version

from tpuserve.devices import emulated_tpu

__version__ = version("tpuserve")
__all__ = ["__version__", "emulated_tpu"]
