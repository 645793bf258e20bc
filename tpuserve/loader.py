"""The public interface for loading a metagraph: `load`, which returns a `LoadedModel`."""

from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.loader import load

__all__ = ["LoadedModel", "load"]
