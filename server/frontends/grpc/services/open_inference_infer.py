"""The method ModelInfer of the Open Inference Protocol: runs a signature on tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from server.codec import raw_tensors
from server.codec.datatypes import Datatype, datatype_of_array, find_datatype
from server.codec.infer_request import limit_time
from server.codec.raw_tensors import check_matches, check_shape, format_shape
from server.dataplane import DataPlane, ModelSpec, Prediction
from server.frontends import output_memory
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.parsing import parse_within_limits, parsing_turn
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array
from server.tensors.parsing_cost import COPIED, VARINTS, Fields
from tpuserve.errors import InvalidInput, InvalidInputNames, InvalidTensor
from tpuserve.proto import protobuf_wire
from tpuserve.proto.open_inference import Message, message_type
from tpuserve.saved_model.signature import Signature

_MAX_VERSION = 2**63 - 1


def decode_model_spec(name: str, version: str) -> ModelSpec:
    """Return the model and the version that a request names.

    Args:
      version: the version as a decimal number; "" for the latest version.

    Raises:
      InvalidInput: the name is empty, or the version is not a whole number from 0 to 2**63 - 1.
    """
    if not name:
        raise InvalidInput("the request names no model. Send its name.")
    if not version:
        return ModelSpec(name, is_open_inference=True)
    # Limit the number of digits, because `int` would take long to convert a long text.
    is_number = version.isascii() and version.isdigit() and len(version) <= 32
    if not is_number or int(version) > _MAX_VERSION:
        raise InvalidInput(
            f"the version is {version[:32]!r}. Send a whole number such as 1, or no version for "
            f"the latest."
        )
    return ModelSpec(name, int(version), is_open_inference=True)


# Name of a datatype → field of InferTensorContents that holds its elements. There is no field for
# FP16 and BF16.
_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
# Field of InferTensorContents → NumPy dtype of its elements, for the fields that several datatypes
# share: for example, the elements of INT8, INT16 and INT32 are all in `int_contents`.
_WIDE: dict[str, np.dtype[Any]] = {
    "int_contents": np.dtype(np.int32),
    "uint_contents": np.dtype(np.uint32),
}


def read_contents(
    name: str,
    contents: Any,
    datatype: Datatype,
    shape: Sequence[int],
    reserve: Callable[[int], object],
) -> Array:
    """Convert the message InferTensorContents of an input to an array.

    Args:
      datatype: the datatype of the input in the protocol, such as FP32.
      reserve: is called with a number of bytes before the array of this size is allocated; raises
        an error to refuse the request.

    Raises:
      InvalidTensor: the shape is invalid, the message has no field for the datatype, the field has
        more or fewer elements than the shape, or an element is out of the range of the datatype.
    """
    count = check_shape(name, shape)
    field = _FIELDS.get(datatype.name)
    if field is None:
        raise InvalidTensor(
            f"input {name!r} is {datatype.name}, which the field contents cannot hold. Send it in "
            f"raw_input_contents."
        )
    values = getattr(contents, field)
    if len(values) != count:
        raise InvalidTensor(
            f"input {name!r} has {len(values)} elements in {field}; its shape "
            f"{format_shape(shape)} has {count}."
        )
    reserve(count * max(8, datatype.dtype.itemsize))
    if datatype.dtype.hasobject:
        array = np.empty(count, object)
        array[:] = list(values)
        return array.reshape(shape)
    wide = np.fromiter(values, _WIDE.get(field, datatype.dtype), count)
    narrow = wide.astype(datatype.dtype, copy=False)
    if wide.dtype != narrow.dtype and not np.array_equal(wide, narrow):
        value = wide[wide != narrow][0]
        raise InvalidTensor(f"input {name!r} has the value {value}, which is no {datatype.name}.")
    return narrow.reshape(shape)


def write_contents(contents: Any, array: Array, datatype: Datatype) -> None:
    """Write an array to the message InferTensorContents of an output.

    Args:
      datatype: the datatype of the array in the protocol. The message must have a field for it, so
        `datatype.is_raw_only` must be False.
    """
    getattr(contents, _FIELDS[datatype.name]).extend(array.reshape(-1).tolist())


# Number of a field of InferTensorContents → how `parse_within_limits` estimates the memory of the
# parsed field.
_CONTENTS: Fields = {**dict.fromkeys(range(1, 6), VARINTS), **dict.fromkeys((6, 7, 8), COPIED)}
# The numbers of the fields of a ModelInferRequest that are allowed to be long: the contents of
# inputs, and `raw_input_contents`. `parse_within_limits` refuses a request with another long field.
_LONG_FIELDS: Fields = {5: {5: _CONTENTS}, 7: COPIED}
# The serialised protobuf tag of the field `raw_output_contents` of a ModelInferResponse.
_RAW_OUTPUT_TAG = protobuf_wire.field_tag(6)


class ModelInfer:
    """The method ModelInfer: runs a signature of one of the served models on tensors."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane

    def __call__(self, raw: bytes | memoryview, call: CallContext) -> bytes | Pending[bytes]:
        """Run a model on the inputs of a request.

        Returns:
          The serialised ModelInferResponse. If the request waits for a batch, a Pending, which has
          the response later.
        """
        message = parse_within_limits(message_type("ModelInferRequest"), raw, _LONG_FIELDS, call)
        parameters = message.parameters
        spec = decode_model_spec(message.model_name, message.model_version)
        spec = spec._replace(signature_name=_read_parameter(parameters, "signature_name", "", str))
        call.set_model_spec(spec)
        outputs = _read_outputs(message)

        def read_inputs(signature: Signature) -> Mapping[str, Array]:
            with parsing_turn(len(raw)):
                return _read_inputs(message, signature, call)

        timeout_us = _read_parameter(parameters, "timeout", 0, int)
        call.request = limit_time(call.request, timeout_us)
        prediction = self._dataplane.start_predict(call.request, spec, read_inputs, outputs)
        # Send outputs in the same form as the inputs of the request, raw bytes or typed fields,
        # because some clients read only one of the two forms.
        is_raw = bool(message.raw_input_contents) or not message.inputs
        request_id = message.id
        return pending.transform(
            prediction,
            lambda outputs_by_name: _serialize(outputs_by_name, request_id, outputs, is_raw, call),
        )


def _read_outputs(message: Message) -> list[str]:
    """Return the names of the outputs that a ModelInferRequest asks for; [] for all outputs."""
    for output in message.outputs:
        _refuse_shared_memory(output, "output")
        if _read_parameter(output.parameters, "classification", 0, int):
            raise InvalidInput(
                f"output {output.name!r} is requested as a classification, which this server does "
                f"not compute. Request its values."
            )
    return [output.name for output in message.outputs]


def _read_inputs(message: Message, signature: Signature, call: CallContext) -> dict[str, Array]:
    inputs, raw_contents = message.inputs, message.raw_input_contents
    names = [tensor.name for tensor in inputs]
    by_name = dict.fromkeys(names)
    if len(by_name) != len(names):
        raise InvalidInputNames("an input is given twice. Send each input once.")
    signature.check_inputs(by_name.keys())
    if raw_contents and len(raw_contents) != len(names):
        raise InvalidTensor(
            f"raw_input_contents has {len(raw_contents)} elements for {len(names)} inputs. Send "
            f"one for each input, in the same order."
        )
    arrays = {}
    for position, tensor in enumerate(inputs):
        call.request.check()
        name, shape = tensor.name, tuple(tensor.shape)
        datatype = find_datatype(tensor.datatype, name)
        _refuse_shared_memory(tensor, "input")
        raw_tensors.check_shape(name, shape)
        check_matches(name, datatype, shape, signature.inputs[name])
        reserve = call.request.reserve
        if not raw_contents:
            arrays[name] = read_contents(name, tensor.contents, datatype, shape, reserve)
            continue
        if tensor.HasField("contents"):
            raise InvalidTensor(
                f"input {name!r} has contents, and the request has raw_input_contents. Send one "
                f"of them."
            )
        data = raw_contents[position]
        arrays[name] = raw_tensors.decode_raw(name, data, datatype, shape, reserve)
    return arrays


def _refuse_shared_memory(tensor: Message, kind: str) -> None:
    if "shared_memory_region" in tensor.parameters:
        raise InvalidInput(
            f"{kind} {tensor.name!r} is in shared memory, which this server does not read. Send "
            f"its data."
        )


def _read_parameter(parameters: Any, name: str, default: Any, kind: type[Any]) -> Any:
    if name not in parameters:
        return default
    parameter = parameters[name]
    choice = parameter.WhichOneof("parameter_choice")
    value = getattr(parameter, choice) if choice else None
    if type(value) is not kind:
        expected = "string_param" if kind is str else "int64_param"
        raise InvalidInput(f"the parameter {name} is no {expected}. Send a value of this field.")
    return value


def _serialize(
    prediction: Prediction, request_id: str, names: list[str], is_raw: bool, call: CallContext
) -> bytes:
    call.version = prediction.version
    outputs = prediction.outputs
    if names:
        outputs = {name: outputs[name] for name in names}
    output_memory.reserve_for_message(outputs, call.request.reserve)
    datatypes = {name: datatype_of_array(array, name) for name, array in outputs.items()}
    # If there is no typed field for the datatype of one output, send all outputs as raw bytes: all
    # outputs of a response must have the same form.
    is_raw = is_raw or any(datatype.is_raw_only for datatype in datatypes.values())
    response = message_type("ModelInferResponse")(
        model_name=prediction.model, model_version=str(prediction.version), id=request_id
    )
    chunks: list[bytes | memoryview] = []
    for name, array in outputs.items():
        tensor = response.outputs.add(name=name, datatype=datatypes[name].name, shape=array.shape)
        if is_raw:
            data = raw_tensors.encode_raw(array)
            chunks += (_RAW_OUTPUT_TAG, protobuf_wire.encode_varint(len(data)), data)
        else:
            write_contents(tensor.contents, array, datatypes[name])
    return b"".join((response.SerializeToString(), *chunks))
