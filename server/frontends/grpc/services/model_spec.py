"""The ModelSpec of a request: which model, which version, which signature; and of a reply."""

from functools import lru_cache
from typing import Any

from tensorflow_serving.apis import model_pb2

from server.dataplane import ModelSpec
from tpuserve.errors import InvalidInput


def read_target(request: Any) -> ModelSpec:
    """What a request with a `model_spec` is addressed to.

    Raises:
      InvalidInput: no model_spec, or no name in it.
    """
    if not request.HasField("model_spec"):
        raise InvalidInput("Missing ModelSpec")
    if not request.model_spec.name:
        raise InvalidInput("ModelSpec has no name specified.")
    return target_of(request.model_spec)


def target_of(spec: Any) -> ModelSpec:
    """What a ModelSpec addresses, be it complete or not."""
    choice = spec.WhichOneof("version_choice")
    if choice is None:
        return ModelSpec(spec.name, None, spec.signature_name)
    if choice == "version":
        return ModelSpec(spec.name, spec.version.value, spec.signature_name)
    return ModelSpec(spec.name, None, spec.signature_name, spec.version_label)


@lru_cache(maxsize=256)
def encode(model: str, version: int, signature_name: str = "") -> bytes:
    """The ModelSpec of a reply, serialized: who has answered."""
    spec = model_pb2.ModelSpec(name=model, signature_name=signature_name)
    spec.version.value = version
    return bytes(spec.SerializeToString())
