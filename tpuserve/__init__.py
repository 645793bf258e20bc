"""One SavedModel, two metagraphs: export for CPU and TPU, prove the TPU one here, serve either.

Importing this package does not import TensorFlow; `tpuserve.loader`, `tpuserve.lowering` and
`tpuserve.export` do.
"""

from importlib.metadata import version

from tpuserve.devices import emulated_tpu

__version__ = version("tpuserve")
__all__ = ["__version__", "emulated_tpu"]
