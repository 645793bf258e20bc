"""A model of the zoo."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Inputs: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ZooModel:
    """A model, the way its users would save it, and requests for it.

    Attributes:
      name: The model's name in the table.
      saved_by: The library and the call that write the SavedModel.
      write: Writes the SavedModel into a directory that does not exist yet.
      inputs: Makes the inputs of a request of so many rows, by name.
      signature: The signature that is asked.
    """

    name: str
    saved_by: str
    write: Callable[[Path], None]
    inputs: Callable[[int], Inputs]
    signature: str = "serving_default"


def normal(name: str, *shape: int) -> Callable[[int], Inputs]:
    """Return a maker of inputs with one float32 tensor of normal random numbers."""

    def make(rows: int) -> Inputs:
        values = np.random.default_rng(rows).normal(size=(rows, *shape))
        return {name: values.astype(np.float32)}

    return make
