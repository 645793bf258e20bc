"""Describes the forms with which the page tries the signatures of a version."""

from typing import Any, TypeAlias
from urllib.parse import parse_qs

from server.dataplane import DataPlaneInterface, ModelSpec
from server.dataplane.results import SampleInput
from server.frontends.rest import sample_body
from tpuserve.errors import InvalidInput, TpuserveError
from tpuserve.saved_model.signature import (
    CLASSIFY_METHOD,
    DEFAULT_SIGNATURE,
    REGRESS_METHOD,
    Signature,
    TensorSpec,
)

Json: TypeAlias = dict[str, Any]

_VERBS = {CLASSIFY_METHOD: "classify", REGRESS_METHOD: "regress"}
_CHANNELS = (1, 3)
# A smaller tensor is rather a table of numbers than a picture.
_MIN_SIDE = 8
_NAMES_OF_PICTURES = ("image", "picture", "pixel")


def parse_query(query: str) -> ModelSpec:
    """Return the version that the query of a URL names: model=NAME&version=N.

    Raises:
      InvalidInput: The query is invalid.
    """
    values = parse_qs(query)
    try:
        (model,), (version,) = values["model"], values["version"]
        return ModelSpec(model, int(version))
    except (KeyError, ValueError) as error:
        raise InvalidInput(
            f"the query is {query!r}. Send model=NAME&version=NUMBER, each once."
        ) from error


def describe_version(dataplane: DataPlaneInterface, spec: ModelSpec) -> Json:
    """Describe the signatures of a version, each with a valid value of every input.

    Args:
      dataplane: Describes the models.
      spec: The version.

    Raises:
      ModelNotFound: No such version is available.
    """
    signatures = dataplane.metadata(spec, ["signature_def"]).signatures
    names = sorted(signatures, key=lambda name: (name != DEFAULT_SIGNATURE, name))
    return {
        "model": spec.model,
        "version": str(spec.version),
        "signatures": [
            _describe_signature(dataplane, spec, name, signatures[name]) for name in names
        ],
    }


def _describe_signature(
    dataplane: DataPlaneInterface, spec: ModelSpec, name: str, signature: Signature
) -> Json:
    reason = ""
    samples: dict[str, SampleInput] = {}
    try:
        samples.update(dataplane.sample_request(spec._replace(signature_name=name)).inputs)
    except TpuserveError as error:
        reason = str(error)
    inputs = [
        _describe_input(alias, tensor, samples.get(alias))
        for alias, tensor in sorted(signature.inputs.items())
    ]
    verb = _VERBS.get(signature.method_name, "predict")
    if len(inputs) != 1 or not inputs[0]["features"]:
        # Only the features of a tf.Example make a form for Classify and Regress.
        verb = "predict"
    return {
        "name": name,
        "verb": verb,
        "reason": reason,
        "inputs": inputs,
        "outputs": [
            {"name": alias, "tensor": str(tensor)}
            for alias, tensor in sorted(signature.outputs.items())
        ],
    }


def _describe_input(alias: str, tensor: TensorSpec, sample: SampleInput | None) -> Json:
    described: Json = {
        "name": alias,
        "dtype": tensor.dtype,
        "tensor": str(tensor),
        "shape": None,
        "value": None,
        "features": [],
        "picture": None,
    }
    if sample is None:
        return described
    described["shape"] = sample.shape
    described["features"] = [
        {
            "name": name,
            "kind": feature.kind,
            "size": feature.size,
            "values": sample_body.encode_values(feature),
        }
        for name, feature in sorted(sample.features.items())
    ]
    described["picture"] = (
        {"is_encoded": True} if sample.is_picture else _describe_picture(alias, tensor)
    )
    if sample.array is not None:
        try:
            described["value"] = sample_body.encode_value(sample.array)
        except TpuserveError as error:
            described["error"] = str(error)
    return described


def _describe_picture(alias: str, tensor: TensorSpec) -> Json | None:
    """Return height, width, channels and layout of a tensor of pixels; None for other tensors."""
    shape = tensor.shape
    if shape is None or not tensor.dtype.startswith(("float", "uint8", "int32")):
        return None
    is_named = any(word in alias.lower() for word in _NAMES_OF_PICTURES)
    height: int | None
    width: int | None
    if len(shape) == 4 and shape[3] in _CHANNELS:
        _, height, width, channels = shape
    elif len(shape) == 3:
        (_, height, width), channels = shape, None
    elif len(shape) == 2 and is_named and shape[1] is not None:
        side = round(shape[1] ** 0.5)
        if side * side != shape[1]:
            return None
        return {"height": side, "width": side, "channels": None, "is_flat": True}
    else:
        return None
    if not is_named and (channels is None or height is None or width is None):
        return None
    if any(size is not None and size < _MIN_SIDE for size in (height, width)):
        return None
    return {"height": height, "width": width, "channels": channels, "is_flat": False}
