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
      model: the name of the model.
      version: the version that answered.
      signature_name: the name of the signature.
      outputs: alias → array; strings are object arrays of bytes.
    """

    model: str
    version: int
    signature_name: str
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Classification:
    """The answer to a Classify request.

    Attributes:
      model: the name of the model.
      version: the version that answered.
      signature_name: the name of the signature.
      classes: labels, bytes [examples, classes]; None where the signature has no such output.
      scores: float32 [examples, classes]; None where the signature has no such output.
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
      model: the name of the model.
      version: the version that answered.
      signature_name: the name of the signature.
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
      model: the name of the model.
      version: the version.
      signature_defs: signature name → SignatureDef message.
      signatures: signature name → signature, without the default values of inputs.
    """

    model: str
    version: int
    signature_defs: Mapping[str, Any]
    signatures: Mapping[str, Signature] = field(default_factory=dict)


@dataclass(frozen=True)
class ExampleFeature:
    """A feature of the tf.Examples that a signature parses.

    Attributes:
      kind: "bytes", "float" or "int64".
      size: the number of values; None if any number is valid.
      values: valid values: bytes, floats or ints.
    """

    kind: str
    size: int | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SampleInput:
    """A valid value of an input.

    Attributes:
      shape: the shape of the value.
      array: the value; None if it is too large for a person to read, then any numbers are valid.
      features: the features of the tf.Examples that the value consists of; empty for other values.
      is_picture: whether the model decodes the strings as picture files.
    """

    shape: tuple[int, ...]
    array: Array | None = None
    features: Mapping[str, ExampleFeature] = field(default_factory=dict)
    is_picture: bool = False


@dataclass(frozen=True)
class SampleRequest:
    """A valid request.

    Attributes:
      inputs: alias → valid value.
    """

    inputs: Mapping[str, SampleInput]


@dataclass(frozen=True)
class ModelStatus:
    """The status of a model.

    Attributes:
      versions: the versions that are loaded, loading or failed; newest first.
      reason: why no version is known; None where versions are known.
    """

    versions: Sequence[VersionStatus]
    reason: TpuserveError | None = None


@dataclass(frozen=True)
class Statistics:
    """Statistics of a version.

    Attributes:
      model: the name of the model.
      version: the version.
      batching: the batching statistics, from `BatchingStatistics.snapshot`; None for a version
        whose requests are not batched.
      inferences: the runs of the version.
    """

    model: str
    version: int
    batching: Mapping[str, Any] | None
    inferences: InferenceStatistics = field(default_factory=InferenceStatistics)
