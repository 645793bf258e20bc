"""Describes the forms of the console, with which users try the signatures of a model version."""

from typing import Any, TypeAlias
from urllib.parse import parse_qs

from server.dataplane import DataPlane, ModelSpec
from server.dataplane.results import SampleInput
from server.frontends.rest import sample_values
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
# The least height and width of a picture. A tensor with smaller sides is taken for a table of
# numbers.
_MIN_SIDE = 8
_NAMES_OF_PICTURES = ("image", "picture", "pixel")


def parse_query(query: str) -> ModelSpec:
    """Return the model and version that the query string of a URL names: model=NAME&version=N."""
    values = parse_qs(query)
    try:
        (model,), (version,) = values["model"], values["version"]
        return ModelSpec(model, int(version))
    except (KeyError, ValueError) as error:
        raise InvalidInput(
            f"the query is {query!r}. Send model=NAME&version=NUMBER, each once."
        ) from error


def describe_version(dataplane: DataPlane, spec: ModelSpec) -> Json:
    """Describe the signatures of a version, with a valid value for each input.

    The page builds a form for each signature, and fills it with these values.
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
    dataplane: DataPlane, spec: ModelSpec, name: str, signature: Signature
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
        # Let the form send a Predict request if the features of the tf.train.Example are not known:
        # without them, the form cannot build a Classify or Regress request.
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
            "values": sample_values.encode_values(feature),
        }
        for name, feature in sorted(sample.features.items())
    ]
    described["picture"] = (
        {"is_encoded": True} if sample.is_picture else _describe_picture(alias, tensor)
    )
    if sample.array is not None:
        try:
            described["value"] = sample_values.encode_value(sample.array)
        except TpuserveError as error:
            described["error"] = str(error)
    return described


def _describe_picture(alias: str, tensor: TensorSpec) -> Json | None:
    """Return the height, width and channels of an input that holds a picture."""
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
