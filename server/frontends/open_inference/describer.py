"""Describes the server and its models in the messages of the Open Inference Protocol.

Each method returns a message as a dictionary: field name → value. REST sends the dictionary as
JSON, and gRPC as a protobuf message with the same fields.
"""

from collections.abc import Mapping
from importlib import metadata
from typing import Any, TypeAlias

from server.codec.open_inference.datatypes import datatype_name
from server.dataplane import DataPlaneInterface, ModelSpec
from server.servables.servable import State
from tpuserve.errors import Unavailable
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import TensorSpec

Message: TypeAlias = dict[str, Any]

PLATFORM = "tensorflow_savedmodel"
"""Triton's name of the format of the models."""

_SERVER_NAME = "tpuserve"
_EXTENSIONS = ("binary_tensor_data", "parameters")


class Describer:
    """Describes the server and the models of a data plane."""

    def __init__(self, dataplane: DataPlaneInterface) -> None:
        """Create a describer of the models of a data plane."""
        self._dataplane = dataplane

    def server_metadata(self) -> Message:
        """Return a ServerMetadataResponse."""
        return {
            "name": _SERVER_NAME,
            "version": metadata.version("tpuserve"),
            "extensions": list(_EXTENSIONS),
        }

    def model_metadata(self, spec: ModelSpec) -> Message:
        """Return a ModelMetadataResponse with the tensors of the signature "serving_default".

        A dimension of unknown size is -1. So is the only dimension of a tensor of unknown rank.

        Raises:
          ModelNotFound: no such version is available.
          SignatureNotFound: the model has no signature of this name.
        """
        described = self._dataplane.metadata(spec, ["signature_def"])
        signature = signatures.find_signature(described.signatures, spec.effective_signature_name)
        versions = sorted(
            status.version
            for status in self._dataplane.status(spec.model)
            if status.state is State.AVAILABLE
        )
        return {
            "name": spec.model,
            "versions": list(map(str, versions)),
            "platform": PLATFORM,
            "inputs": _describe_tensors(signature.inputs),
            "outputs": _describe_tensors(signature.outputs),
        }

    def is_ready(self, spec: ModelSpec) -> bool:
        """Return whether the requested version, or any version if none is requested, is available.

        Raises:
          ModelNotFound: the server has no such model or version.
        """
        statuses = self._dataplane.status(spec.model, spec.version)
        return any(status.state is State.AVAILABLE for status in statuses)

    def check_ready(self, spec: ModelSpec) -> None:
        """Check that the requested version, or any version if none is requested, is available.

        Raises:
          ModelNotFound: the server has no such model or version.
          Unavailable: the version is loading, has failed or is unloaded.
        """
        if not self.is_ready(spec):
            raise Unavailable(
                f"model {spec.model} is not ready. Read the states of its versions from "
                f"/v1/models/{spec.model}."
            )


def _describe_tensors(specs: Mapping[str, TensorSpec]) -> list[Message]:
    return [
        {"name": alias, "datatype": datatype_name(spec.dtype), "shape": describe_shape(spec)}
        for alias, spec in specs.items()
    ]


def describe_shape(spec: TensorSpec) -> list[int]:
    """Return the shape of a tensor with -1 for an unknown size, and [-1] for an unknown rank."""
    if spec.shape is None:
        return [-1]
    return [-1 if size is None else size for size in spec.shape]
