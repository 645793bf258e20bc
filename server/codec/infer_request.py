"""Decodes the REST infer requests of the Open Inference Protocol.

The body of such a request is JSON, or JSON followed by binary data of tensors.

Source: the specification of the protocol ("Inference Request JSON Object"), and Triton's extension
for binary tensor data.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from server.codec import raw_tensors
from server.codec.datatypes import find_datatype
from server.codec.json_parser import Json
from server.codec.json_to_array import decode_value
from server.codec.numeric_arrays import RawNumericArray
from server.codec.raw_tensors import check_matches, check_shape, format_shape
from server.request import RequestContext
from server.servables.servable import Array
from tpuserve.errors import (
    InvalidInput,
    InvalidInputNames,
    InvalidJson,
    InvalidTensor,
    TpuserveError,
)
from tpuserve.saved_model.signature import Signature


def limit_time(context: RequestContext, timeout_us: int | None) -> RequestContext:
    """Return the context of an infer request with the time limit that the request sets itself.

    Args:
      timeout_us: the parameter `timeout` of the request, in microseconds from its arrival; None or
        0 for no limit.
    """
    if not timeout_us:
        return context
    elapsed_seconds = (time.perf_counter_ns() - context.timeline.queued_ns) / 1e9
    limited = context.limited_to(time.monotonic() + timeout_us / 1e6 - elapsed_seconds)
    limited.check()
    return limited


# The integer types whose values are decoded as int64 and then checked against the range of the
# type.
_NARROW_INTEGERS = frozenset(("int8", "int16", "int32", "uint8", "uint16", "uint32"))
_NO_SHARED_MEMORY = "shared_memory_region"
_MAX_ERROR_CHARACTERS = 512
# The largest number of characters in the name of a tensor. This limit keeps the texts of errors,
# which contain the name, short.
_MAX_NAME_CHARACTERS = 1024


class InferInput(NamedTuple):
    """The description of an input tensor in an infer request.

    Attributes:
      datatype: the protocol's name of the datatype, such as "FP32".
      num_bytes: the size in bytes of the input's binary data, which follow the JSON; None if the
        JSON itself holds the values of the input.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    num_bytes: int | None


class InferRequest(NamedTuple):
    """The contents of an infer request's JSON, without the binary data that may follow the JSON.

    Attributes:
      request_id: the client's ID of the request, which the response repeats; "" for none.
      signature_name: the name of the signature to run; "" means "serving_default".
      timeout_us: the time limit of the client in microseconds; None for no limit.
      outputs: the requested outputs: name → whether the output is to be sent as binary data. If
        empty, all outputs of the signature are requested.
      arrays: the arrays of the inputs whose values are in the JSON: name → array.
    """

    request_id: str
    signature_name: str
    timeout_us: int | None
    inputs: tuple[InferInput, ...]
    outputs: Mapping[str, bool]
    is_binary_by_default: bool
    arrays: Mapping[str, Array]

    def is_binary(self, output: str) -> bool:
        """Return whether the response must send an output as binary data, and not as JSON."""
        return self.outputs.get(output, self.is_binary_by_default)

    def read_inputs(
        self, signature: Signature, binary: memoryview, reserve: Callable[[int], object]
    ) -> dict[str, Array]:
        """Return the array of each input: name → array.

        The inputs are checked against the signature.

        Args:
          reserve: a function that reserves memory. It is called with the number of bytes of each
            array that must be allocated, and raises an error to refuse the request.

        Raises:
          InvalidTensor: an input does not have the type and shape of the signature, or the binary
            data do not have the size that the JSON declares.
        """
        signature.check_inputs(dict.fromkeys(tensor.name for tensor in self.inputs).keys())
        arrays: dict[str, Array] = {}
        position = 0
        for name, datatype_name, shape, num_bytes in self.inputs:
            datatype = find_datatype(datatype_name, name)
            check_matches(name, datatype, shape, signature.inputs[name])
            if num_bytes is None:
                arrays[name] = self.arrays[name]
                continue
            data = binary[position : position + num_bytes]
            position += num_bytes
            if len(data) != num_bytes:
                raise InvalidTensor(
                    f"input {name!r} has a binary_data_size of {num_bytes}, of which the body has "
                    f"{len(data)} bytes. Send the data of all inputs behind the JSON."
                )
            arrays[name] = raw_tensors.decode_raw(name, data, datatype, shape, reserve)
        if position != len(binary):
            raise InvalidTensor(
                f"{len(binary)} bytes follow the JSON, and the inputs have a binary_data_size of "
                f"{position} together. Send both alike."
            )
        return arrays


def decode_infer_request(document: Json) -> InferRequest:
    """Decode the JSON of an infer request.

    Raises:
      InvalidTensor: the values of an input do not have the declared datatype and shape.
      InvalidInput: an output is requested twice or as a classification, or a tensor is in shared
        memory.
    """
    if type(document) is not dict:
        raise InvalidJson("the request is no JSON object. Send an object with 'inputs'.")
    parameters = _member(document, "parameters", dict, {}, "the request")
    inputs: list[InferInput] = []
    arrays: dict[str, Array] = {}
    for position, item in enumerate(_read_list(document, "inputs", is_required=True)):
        tensor = _read_input(item, position)
        if any(tensor.name == other.name for other in inputs):
            raise InvalidInputNames(f"input {tensor.name!r} is given twice. Send it once.")
        inputs.append(tensor)
        if tensor.num_bytes is None:
            arrays[tensor.name] = _decode_data(tensor, item)
    is_binary_by_default = _member(parameters, "binary_data_output", bool, False, "the request")
    return InferRequest(
        request_id=_member(document, "id", str, "", "the request"),
        signature_name=_member(parameters, "signature_name", str, "", "the request"),
        timeout_us=_member(parameters, "timeout", int, 0, "the request") or None,
        inputs=tuple(inputs),
        outputs=_read_outputs(_read_list(document, "outputs"), is_binary_by_default),
        is_binary_by_default=is_binary_by_default,
        arrays=arrays,
    )


def _read_input(item: Json, position: int) -> InferInput:
    subject = f"input {position}"
    if type(item) is not dict:
        raise InvalidJson(f"{subject} is no object. Send its name, shape, datatype and data.")
    name = _read_name(item, subject)
    subject = f"input {name!r}"
    datatype = _member(item, "datatype", str, None, subject)
    shape = _member(item, "shape", list, None, subject)
    if any(type(size) is not int for size in shape):
        raise InvalidJson(f"the shape of {subject} is no list of whole numbers.")
    check_shape(name, shape)
    parameters = _member(item, "parameters", dict, {}, subject)
    _refuse_shared_memory(parameters, subject)
    num_bytes = None
    if "binary_data_size" in parameters:
        num_bytes = _member(parameters, "binary_data_size", int, None, subject)
        if num_bytes < 0:
            raise InvalidJson(f"{subject} has a binary_data_size of {num_bytes}. Send 0 or more.")
        if "data" in item:
            raise InvalidJson(f"{subject} has 'data' and a binary_data_size. Send one of them.")
    return InferInput(name, datatype, tuple(shape), num_bytes)


def _read_name(item: Mapping[str, Json], subject: str) -> str:
    name: str = _member(item, "name", str, None, subject)
    if len(name) > _MAX_NAME_CHARACTERS:
        raise InvalidJson(
            f"the name of {subject} has {len(name)} characters. Send at most "
            f"{_MAX_NAME_CHARACTERS}."
        )
    return name


def _read_outputs(items: Sequence[Json], is_binary_by_default: bool) -> dict[str, bool]:
    outputs: dict[str, bool] = {}
    for position, item in enumerate(items):
        subject = f"output {position}"
        if type(item) is not dict:
            raise InvalidJson(f"{subject} is no object. Send its name.")
        name = _read_name(item, subject)
        subject = f"output {name!r}"
        if name in outputs:
            raise InvalidInput(f"{subject} is requested twice. Request it once.")
        parameters = _member(item, "parameters", dict, {}, subject)
        _refuse_shared_memory(parameters, subject)
        if _member(parameters, "classification", int, 0, subject):
            raise InvalidInput(
                f"{subject} is requested as a classification, which this server does not compute. "
                f"Request its values."
            )
        outputs[name] = _member(parameters, "binary_data", bool, is_binary_by_default, subject)
    return outputs


def _decode_data(tensor: InferInput, item: Mapping[str, Json]) -> Array:
    """Decode the values of an input whose "data" are a flat or nested JSON list."""
    name, datatype = tensor.name, find_datatype(tensor.datatype, tensor.name)
    data = item.get("data")
    if type(data) is not list and type(data) is not RawNumericArray:
        raise InvalidJson(
            f"input {name!r} has no list 'data', and no binary_data_size in its parameters. Send "
            f"one of them."
        )
    if datatype.is_raw_only:
        raise InvalidTensor(
            f"input {name!r} is {datatype.name}, which JSON cannot hold. Send it as binary data."
        )
    is_narrow = datatype.tensorflow_name in _NARROW_INTEGERS
    try:
        array = decode_value(data, "int64" if is_narrow else datatype.tensorflow_name)
    except TpuserveError as error:
        # Put the error text on one line, because it may quote a value of the request that has line
        # breaks.
        reason = " ".join(str(error).split())[:_MAX_ERROR_CHARACTERS]
        raise InvalidTensor(f"input {name!r}: {reason}") from error
    if is_narrow:
        array = _narrow(array, datatype.dtype, name, datatype.name)
    count = check_shape(name, tensor.shape)
    if array.size != count:
        raise InvalidTensor(
            f"input {name!r} has {array.size} elements; its shape {format_shape(tensor.shape)} has "
            f"{count}."
        )
    return array.reshape(tensor.shape)


def _narrow(array: Array, dtype: np.dtype[Any], name: str, datatype: str) -> Array:
    bounds = np.iinfo(dtype)
    if array.size and (array.min() < bounds.min or array.max() > bounds.max):
        extreme = array.min() if array.min() < bounds.min else array.max()
        raise InvalidTensor(f"input {name!r} has the value {extreme}, which is no {datatype}.")
    return array.astype(dtype)


def _refuse_shared_memory(parameters: Mapping[str, Json], subject: str) -> None:
    if _NO_SHARED_MEMORY in parameters:
        raise InvalidInput(
            f"{subject} is in shared memory, which this server does not read. Send its data."
        )


def _read_list(document: Mapping[str, Json], key: str, *, is_required: bool = False) -> list[Json]:
    items: list[Json] = _member(document, key, list, None if is_required else [], "the request")
    return items


def _member(
    document: Mapping[str, Json], key: str, kind: type[Any], default: Any, subject: str
) -> Any:
    value = document.get(key, default)
    if type(value) is RawNumericArray and kind is list:
        value = value.tolist()
    if type(value) is not kind:
        names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
        fault = "has no" if key not in document else "has another"
        raise InvalidJson(f"{subject} {fault} '{key}'. Send {names.get(kind, 'an integer')}.")
    return value
