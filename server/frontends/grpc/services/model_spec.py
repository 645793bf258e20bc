"""Converts between TensorFlow Serving's message ModelSpec and the server's class ModelSpec.

Source: tensorflow_serving/apis/model.proto.
"""

from functools import lru_cache
from typing import Any

from tensorflow_serving.apis import model_pb2

from server.dataplane import ModelSpec
from tpuserve.errors import InvalidInput


def decode_request_model_spec(request: Any) -> ModelSpec:
    """Return the model, version and signature that the field `model_spec` of a request names."""
    if not request.HasField("model_spec"):
        raise InvalidInput("Missing ModelSpec")
    if not request.model_spec.name:
        raise InvalidInput("ModelSpec has no name specified.")
    return decode_model_spec(request.model_spec)


def decode_model_spec(proto: Any) -> ModelSpec:
    """Return the model, version and signature that a ModelSpec message names.

    Unlike `decode_request_model_spec`, the function accepts a message without a model name.
    """
    version_choice = proto.WhichOneof("version_choice")
    if version_choice is None:
        return ModelSpec(proto.name, None, proto.signature_name)
    if version_choice == "version":
        return ModelSpec(proto.name, proto.version.value, proto.signature_name)
    return ModelSpec(proto.name, None, proto.signature_name, proto.version_label)


@lru_cache(maxsize=256)
def serialize_model_spec(model: str, version: int, signature_name: str = "") -> bytes:
    """Serialise the ModelSpec message of a response, with the version that has answered.

    Args:
      signature_name: the signature that has run; empty if the response names none.
    """
    proto = model_pb2.ModelSpec(name=model, signature_name=signature_name)
    proto.version.value = version
    return bytes(proto.SerializeToString())
