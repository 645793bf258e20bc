"""Encodes requests and decodes replies of the Open Inference Protocol (KServe V2) over REST.

Source: the specification of the protocol, and Triton's binary tensor data extension.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from tpuserve.client import arrays
from tpuserve.client.apis import open_inference
from tpuserve.client.apis.api import Api
from tpuserve.client.apis.open_inference import NO_EXTENSION, SIGNATURE_PARAMETER
from tpuserve.client.apis.rest_v1 import MALFORMED, decode_json, invalid_reply
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Steps, VersionStatus
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature

_HEADER_LENGTH = "inference-header-content-length"
_FLOATS = ("FP16", "FP32", "FP64")


class RestV2(Api):
    """Encodes requests and decodes replies of the Open Inference Protocol over REST.

    The body of a request is a JSON document, followed by the elements of the inputs as bytes.
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
        reply = yield from self._request_prediction(model, inputs, signature_name, outputs)
        return _decode_outputs(reply)

    def encode_predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Array],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Call:
        """Encode an inference request: a JSON document, then the elements of the inputs as bytes.

        The arguments are those of `Api.encode_predict`.
        """
        tensors, chunks = [], []
        for name, array in inputs.items():
            chunks.append(open_inference.encode_raw(array))
            tensors.append(
                {
                    "name": name,
                    "datatype": open_inference.datatype_of(array, name),
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": len(chunks[-1])},
                }
            )
        parameters: dict[str, Any] = {"binary_data_output": True}
        if signature_name:
            parameters["signature_name"] = signature_name
        document: dict[str, Any] = {"parameters": parameters, "inputs": tensors}
        if outputs:
            document["outputs"] = [{"name": name} for name in outputs]
        text = orjson.dumps(document)
        headers = {
            _HEADER_LENGTH: str(len(text)),
            "content-type": "application/octet-stream",
        }
        return Call(f"{_path(model)}/infer", b"".join((text, *chunks)), headers)

    def signatures(self, model: ModelReference) -> Steps[Mapping[str, Signature]]:
        """Request the default signature of a model, and the name that the signature has.

        The name is in Triton's model configuration, which not every server offers.
        """
        described = yield from self._describe(model, "")
        try:
            reply = yield Call(f"{_path(model)}/config")
        except NO_EXTENSION:
            return {DEFAULT_SIGNATURE: described[""]}
        try:
            parameters = decode_json(reply).get("parameters", {})
            name = parameters.get(SIGNATURE_PARAMETER, {}).get("string_value", DEFAULT_SIGNATURE)
            return {name: described[""]}
        except MALFORMED as error:
            raise invalid_reply("the configuration has another form", reply) from error

    def _describe(self, model: ModelReference, name: str) -> Steps[Mapping[str, Signature]]:
        """Request a signature; the arguments are those of `Api._describe`."""
        query = f"?signature_name={quote(name, safe='')}" if name else ""
        reply = yield Call(_path(model) + query)
        document = decode_json(reply)
        try:
            inputs, outputs = (
                {
                    tensor["name"]: open_inference.tensor_spec(
                        tensor["name"], tensor["datatype"], list(map(int, tensor["shape"]))
                    )
                    for tensor in document[kind]
                }
                for kind in ("inputs", "outputs")
            )
        except MALFORMED as error:
            raise invalid_reply("the metadata have another form", reply) from error
        return {name: Signature(inputs, outputs)}

    def versions(self, name: str) -> Steps[list[VersionStatus]]:
        """Request the state of each version of a model from Triton's repository index."""
        reply = yield Call("/v2/repository/index", b"{}")
        try:
            versions = [
                VersionStatus(int(entry["version"]), entry["state"], entry.get("reason", ""))
                for entry in decode_json(reply)
                if entry["name"] == name and entry.get("version")
            ]
        except MALFORMED as error:
            raise invalid_reply("the index has another form", reply) from error
        return versions

    def _ready_call(self, model: ModelReference) -> Call:
        return Call(f"{_path(model)}/ready", is_retried=False)

    def _says_ready(self, reply: Reply) -> bool:
        return True


def _path(model: ModelReference) -> str:
    open_inference.check_model(model)
    path = f"/v2/models/{quote(model.name, safe='')}"
    return path if model.version is None else f"{path}/versions/{model.version}"


def _decode_outputs(reply: Reply) -> dict[str, Array]:
    size = reply.headers.get(_HEADER_LENGTH, "")
    body = memoryview(reply.body)
    position = len(body)
    # The body begins with a JSON document, whose size is the value of an HTTP header. Check the
    # number of digits of this value before calling int(), which refuses thousands of digits.
    if size.isascii() and size.isdigit() and len(size) <= len(str(position)):
        position = int(size)
    document = decode_json(Reply(bytes(body[:position])))
    outputs: dict[str, Array] = {}
    try:
        for tensor in document["outputs"]:
            name, datatype = tensor["name"], tensor["datatype"]
            shape = [int(size) for size in tensor["shape"]]
            num_bytes = tensor.get("parameters", {}).get("binary_data_size")
            if num_bytes is None:
                outputs[name] = _from_json(name, tensor["data"], datatype, shape)
                continue
            if not 0 <= num_bytes <= len(body) - position:
                raise ValueError(f"the size {num_bytes} of output {name!r}")
            data = body[position : position + num_bytes]
            position += num_bytes
            outputs[name] = open_inference.decode_raw(name, data, datatype, shape)
    except MALFORMED as error:
        raise invalid_reply(f"its outputs have another form ({error})", reply) from error
    return outputs


def _from_json(name: str, data: Any, datatype: str, shape: Sequence[int]) -> Array:
    dtype = open_inference.numpy_dtype(name, datatype)
    if dtype.hasobject:
        flat = arrays.object_array([text.encode() for text in data])
    else:
        if datatype in _FLOATS:
            # Servers that write JSON with orjson write null for NaN.
            data = [math.nan if number is None else number for number in data]
        flat = arrays.convert_to_array(data, dtype)
    return flat.reshape(tuple(shape))
