"""What a request is answered with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from server.servables.servable import Array, VersionStatus
from tpuserve.errors import TpuserveError


class Prediction(NamedTuple):
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


@dataclass(frozen=True)
class ModelStatus:
    """How a model is.

    Attributes:
      versions: those that are there, on their way, or could not be loaded; newest first.
      reason: why nothing is known of its versions; None where something is.
    """

    versions: Sequence[VersionStatus]
    reason: TpuserveError | None = None
