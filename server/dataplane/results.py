"""The results of requests, independent of any protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from server.dataplane.inference_statistics import InferenceStatistics
from server.servables.servable import Array, VersionStatus
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature


class Prediction(NamedTuple):
    """The answer to a Predict request.

    Attributes:
      outputs: output alias → array. Arrays of strings are object arrays of bytes.
    """

    model: str
    version: int
    signature_name: str
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Classification:
    """The answer to a Classify request.

    Attributes:
      classes: the labels, an object array of bytes of shape [examples, classes]; None if the
        signature has no such output.
      scores: the scores, float32 of shape [examples, classes]; None if the signature has no such
        output.
    """

    model: str
    version: int
    signature_name: str
    classes: Array | None
    scores: Array | None


@dataclass(frozen=True)
class Regression:
    """The answer to a Regress request.

    Attributes:
      values: the values, float32 of shape [examples].
    """

    model: str
    version: int
    signature_name: str
    values: Array


@dataclass(frozen=True)
class Metadata:
    """The signatures of a model version.

    Attributes:
      signatures: signature name → signature, without the default values of inputs.
    """

    model: str
    version: int
    signature_defs: Mapping[str, Any]
    signatures: Mapping[str, Signature] = field(default_factory=dict)


@dataclass(frozen=True)
class ExampleFeature:
    """A feature of the tf.train.Example messages that a signature parses.

    Attributes:
      kind: "bytes", "float" or "int64".
      size: the number of values; None if any number is valid.
      values: a valid value of the feature: a sequence of bytes, floats or ints; None if there are
        too many values to show in an example.
    """

    kind: str
    size: int | None
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class SampleInput:
    """A valid value of one input of a signature, as an example for users.

    Attributes:
      array: the value; None if the array is too large to show in an example.
      features: the features of the tf.train.Example messages in `array`; empty if the strings of
        the input are not such messages.
    """

    shape: tuple[int, ...]
    array: Array | None = None
    features: Mapping[str, ExampleFeature] = field(default_factory=dict)
    is_picture: bool = False


@dataclass(frozen=True)
class SampleRequest:
    """A valid Predict request, as an example for users."""

    inputs: Mapping[str, SampleInput]


@dataclass(frozen=True)
class ModelStatus:
    """The status of a model and of its versions.

    Attributes:
      reason: why the server could not find versions in the model's base path at the last poll; None
        if it found a version.
      loaded_bytes: the estimated memory of the loaded versions; 0 if none is loaded, or the server
        does not estimate it.
    """

    versions: Sequence[VersionStatus]
    reason: TpuserveError | None = None
    loaded_bytes: int = 0


@dataclass(frozen=True)
class Statistics:
    """Statistics of a model version since it was loaded.

    Attributes:
      batching: the batching statistics, from `BatchingStatistics.snapshot`; None for a version
        whose requests are not batched.
    """

    model: str
    version: int
    batching: Mapping[str, Any] | None
    inferences: InferenceStatistics = field(default_factory=InferenceStatistics)
