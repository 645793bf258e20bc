"""What a request is answered with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.servable import Array


@dataclass(frozen=True)
class Prediction:
    """An answer, and who gave it.

    Attributes:
      outputs: alias → array; strings are object arrays of bytes.
    """

    model: str
    version: int
    signature_name: str
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Classification:
    """The classes of each example, and who gave them.

    Attributes:
      classes: labels, bytes in an object array [examples, classes]; None where the signature
        gives none.
      scores: float32 [examples, classes]; None where the signature gives none.
    """

    model: str
    version: int
    signature_name: str
    classes: Array | None
    scores: Array | None


@dataclass(frozen=True)
class Regression:
    """The value of each example, and who gave them.

    Attributes:
      values: float32 [examples].
    """

    model: str
    version: int
    signature_name: str
    values: Array


@dataclass(frozen=True)
class Metadata:
    """The signatures of a version.

    Attributes:
      signature_defs: name → SignatureDef, whole, as the model has it.
    """

    model: str
    version: int
    signature_defs: Mapping[str, Any]
