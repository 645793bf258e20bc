"""Encodes requests and decodes replies of TensorFlow Serving's REST API, for the clients.

Source: TensorFlow Serving's document of its RESTful API.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson

from tpuserve.client import arrays
from tpuserve.client.apis.api import Api
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Steps, VersionStatus
from tpuserve.errors import Code, CodedError, InvalidReply, NotFound, TpuserveError
from tpuserve.saved_model.dtypes import DTYPE_NAMES
from tpuserve.saved_model.signature import INIT_SIGNATURE, Signature, TensorSpec

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of reading a JSON document that has another form than the API defines."""

_NOT_UTF8 = "surrogateescape"
JSON_HEADERS = {"content-type": "application/json"}
# Name of a dtype in replies, such as "DT_INT32" → TensorFlow's name, such as "int32". For three
# dtypes, the two names differ in more than the prefix and the case: "DT_HALF" means "float16".
_DTYPES = {
    **{f"DT_{name.upper()}": name for name in DTYPE_NAMES.values()},
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
}


class RestV1(Api):
    """Encodes requests and decodes replies of TensorFlow Serving's REST API; tensors are JSON.

    JSON has no dtypes. Therefore the outputs of a reply get the dtypes that the signature declares.
    """

    is_http = True

    def predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[dict[str, Array]]:
        """Run a signature of a model; the arguments are those of `Api.predict`."""
        signature = yield from self.signature(model, signature_name)
        converted = arrays.convert_inputs(inputs, signature)
        try:
            reply = yield self.encode_predict(model, converted, signature_name, outputs)
            return _decode_outputs(reply, signature, outputs)
        except TpuserveError as error:
            self._forget(model, error)
            raise

    def encode_predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Array],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Call:
        """Encode a Predict request in the columnar format, {"inputs": {...}}.

        The arguments are those of `Api.encode_predict`. A REST request cannot choose outputs, so
        the argument outputs is not used.
        """
        document: dict[str, Any] = {}
        if signature_name:
            document["signature_name"] = signature_name
        document["inputs"] = {name: _to_json(name, array) for name, array in inputs.items()}
        return Call(f"{path(model)}:predict", _encode(document, inputs), JSON_HEADERS)

    def signatures(self, model: ModelReference) -> Steps[Mapping[str, Signature]]:
        """Request the signatures of a model from its metadata."""
        reply = yield Call(f"{path(model)}/metadata")
        document = decode_json(reply)
        try:
            definitions = document["metadata"]["signature_def"]["signature_def"]
            return {
                name: _signature(definition)
                for name, definition in definitions.items()
                if name != INIT_SIGNATURE
            }
        except MALFORMED as error:
            raise invalid_reply("the metadata have another form", reply) from error

    def versions(self, name: str) -> Steps[list[VersionStatus]]:
        """Request the state of each version of a model."""
        reply = yield Call(path(ModelReference(name)))
        return _decode_versions(reply)

    def _ready_call(self, model: ModelReference) -> Call:
        return Call(path(model), is_retried=False)

    def _says_ready(self, reply: Reply) -> bool:
        return any(version.state == "AVAILABLE" for version in _decode_versions(reply))


def decode_json(reply: Reply) -> Any:
    """Parse the JSON body of a reply."""
    try:
        return orjson.loads(reply.body)
    except ValueError:
        pass
    try:
        # orjson has refused the body. TensorFlow Serving writes NaN and Infinity as words, which
        # Python's json module can read.
        return json.loads(reply.body.decode("utf-8", _NOT_UTF8))
    except (ValueError, RecursionError) as error:
        raise invalid_reply("it is no JSON", reply) from error


def invalid_reply(reason: str, reply: Reply) -> InvalidReply:
    """Create the error for a reply that does not have the form that the API defines.

    Args:
      reply: the reply; the first bytes of its body are quoted.
    """
    start = reply.body[:60].decode("utf-8", "replace")
    return InvalidReply(
        f"the server's answer begins with {start!r}: {reason}. Check that the URL is that of a "
        f"model server and that the API is the right one."
    )


def path(model: ModelReference) -> str:
    """Return the path of a model, or of the version or label that the reference selects."""
    base = f"/v1/models/{quote(model.name, safe='')}"
    if model.version is not None:
        return f"{base}/versions/{model.version}"
    return f"{base}/labels/{quote(model.label, safe='')}" if model.label else base


def _to_json(name: str, array: Array) -> Any:
    """Convert an input to a value that orjson can write as JSON."""
    kind = arrays.tensorflow_dtype(array, name)
    if kind == "string":
        from base64 import b64encode

        flat = [{"b64": b64encode(text).decode("ascii")} for text in array.ravel().tolist()]
        return _nest(flat, array.shape)
    if kind.startswith("complex"):
        raise CodedError(
            f"input {name!r} is {kind}, which JSON cannot hold. Use a grpc:// URL.",
            Code.UNIMPLEMENTED,
        )
    if kind in ("float16", "bfloat16"):
        array = array.astype(np.float32)
    array = arrays.little_endian(array)
    return array if array.ndim else array.item()


def _encode(document: dict[str, Any], inputs: Mapping[str, Array]) -> bytes:
    is_finite = all(
        np.isfinite(array.astype(np.float32) if array.dtype.kind == "V" else array).all()
        for array in inputs.values()
        if array.dtype.kind in "fV"
    )
    if is_finite:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    # An input has NaN or Infinity, which orjson writes as null. Use Python's json module, which
    # writes them by name: TensorFlow Serving reads these names.
    text = json.dumps(document, default=lambda array: array.tolist(), separators=(",", ":"))
    return text.encode()


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape).tolist()


def _decode_outputs(
    reply: Reply, signature: Signature, requested: Sequence[str]
) -> dict[str, Array]:
    document = decode_json(reply)
    if not isinstance(document, dict) or "outputs" not in document:
        raise invalid_reply("it has no outputs", reply)
    values = document["outputs"]
    if len(signature.outputs) == 1:
        values = {next(iter(signature.outputs)): values}
    if not isinstance(values, dict):
        raise invalid_reply("its outputs have no names", reply)
    names = requested or list(signature.outputs)
    missing = [name for name in names if name not in values]
    if missing:
        raise NotFound(
            f"no output {missing[0]!r}; found {', '.join(sorted(values))}. Request one of those."
        )
    try:
        return {name: _to_array(values[name], signature.outputs[name]) for name in names}
    except MALFORMED as error:
        raise invalid_reply(
            f"its outputs are not those of the signature ({error})", reply
        ) from None


def _to_array(value: Any, spec: TensorSpec) -> Array:
    if spec.dtype != "string":
        return arrays.convert_to_array(value, arrays.numpy_dtype(spec.dtype))
    shape: list[int] = []
    flat = value if isinstance(value, list) else [value]
    if isinstance(value, list):
        shape.append(len(value))
    while flat and isinstance(flat[0], list):
        shape.append(len(flat[0]))
        flat = [element for row in flat for element in row]
    return arrays.object_array([_to_bytes(text) for text in flat]).reshape(shape)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", _NOT_UTF8)
    from base64 import b64decode

    return b64decode(value["b64"])


def _signature(definition: Mapping[str, Any]) -> Signature:
    return Signature(
        _tensors(definition.get("inputs", {})),
        _tensors(definition.get("outputs", {})),
        definition.get("method_name", ""),
    )


def _tensors(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {alias: _tensor(info) for alias, info in sorted(infos.items())}


def _tensor(info: Mapping[str, Any]) -> TensorSpec:
    if "composite_tensor" in info:
        # Such as a ragged tensor: its first component has its values.
        values, *_ = info["composite_tensor"]["components"]
        return TensorSpec("", _dtype(values), None)
    name = "" if "coo_sparse" in info else info["name"]
    return TensorSpec(name, _dtype(info), _shape(info["tensor_shape"]))


def _dtype(info: Mapping[str, Any]) -> str:
    name: str = info["dtype"]
    return _DTYPES.get(name, name)


def _shape(proto: Mapping[str, Any]) -> tuple[int | None, ...] | None:
    if proto.get("unknown_rank"):
        return None
    sizes = [int(dimension["size"]) for dimension in proto.get("dim", [])]
    return tuple(None if size < 0 else size for size in sizes)


def _decode_versions(reply: Reply) -> list[VersionStatus]:
    document = decode_json(reply)
    try:
        return [
            VersionStatus(
                int(status["version"]),
                status["state"],
                status.get("status", {}).get("error_message", ""),
            )
            for status in document["model_version_status"]
        ]
    except MALFORMED as error:
        raise invalid_reply("the status has another form", reply) from error
