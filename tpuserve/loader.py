"""The public functions that load a metagraph: `load`, and the `LoadedModel` that it returns."""

from tpuserve.runtime.loader import LoadedModel, load

__all__ = ["LoadedModel", "load"]
