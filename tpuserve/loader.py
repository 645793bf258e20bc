"""Exports the public function `load`, which loads a metagraph and returns a `LoadedModel`."""

from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.loader import load

__all__ = ["LoadedModel", "load"]
