"""Describes a model of the zoo: how to save it, and how to make requests for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Inputs: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ZooModel:
    """A model of the zoo, saved as its users would save it.

    Attributes:
      name: The model's name in the table.
      saved_by: The library and the call that write the SavedModel.
      write: Writes the SavedModel into a directory that does not exist yet.
      inputs: Takes a number of rows; returns the inputs of a request, name → array.
      signature: The name of the signature to verify, to compile and to send requests to.
    """

    name: str
    saved_by: str
    write: Callable[[Path], None]
    inputs: Callable[[int], Inputs]
    signature: str = "serving_default"


def normal(name: str, *shape: int) -> Callable[[int], Inputs]:
    """Return a function from a number of rows to an input [rows, *shape] of normal numbers."""

    def make(rows: int) -> Inputs:
        values = np.random.default_rng(rows).normal(size=(rows, *shape))
        return {name: values.astype(np.float32)}

    return make
