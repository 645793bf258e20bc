"""A TensorFlow Lite model, served as TensorFlow Serving does with --prefer_tflite_model."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from server.servables.servable import Array
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidTensor,
    ModelExecutionError,
    UnsupportedModel,
)
from tpuserve.saved_model import dtypes
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, TensorSpec

# The metadata with a flexbuffer map of name → serialized SignatureDef.
METADATA = b"signature_defs_metadata"
# What the interpreter says of such, and how it names one.
_SELECT_OPS = "Select TensorFlow op"
_SELECT_OP = re.compile(r"\(Flex(\w+)\)")


class TfLiteModel:
    """A model run by interpreters, each of which runs one request at a time.

    Attributes:
      choice: what runs, for the log.
      signatures, signature_defs: as of `LoadedModel`.
    """

    def __init__(self, interpreters: Sequence[Any], signature_defs: Mapping[str, Any]) -> None:
        """Takes interpreters of one model, with their tensors allocated."""
        self.choice = f"TensorFlow Lite on CPU ({len(interpreters)} interpreters)"
        self.signature_defs = signature_defs
        self.signatures = {name: _signature(each) for name, each in signature_defs.items()}
        self._inputs = _by_name(interpreters[0].get_input_details())
        self._outputs = _by_name(interpreters[0].get_output_details())
        self._free: SimpleQueue[Any] = SimpleQueue()
        for each in interpreters:
            self._free.put(each)

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, Array]:
        """The outputs for some inputs, by alias; errors as of `LoadedModel.run`.

        Args:
          timeout_ms: has no effect: an interpreter cannot be stopped.
        """
        signature = signatures.find_signature(self.signatures, signature_name)
        signature.check_inputs(inputs.keys())
        wanted = list(signature.outputs if output_names is None else output_names)
        signature.check_outputs(wanted)
        fed = [
            (self._inputs[_plain(signature.inputs[alias].name)], array)
            for alias, array in inputs.items()
        ]
        for detail, array in fed:
            _check_type(array, detail)
        interpreter = self._free.get()
        try:
            return self._run(interpreter, fed, signature, wanted)
        except (ValueError, RuntimeError) as error:
            # An interpreter says no more than that; shapes are what a request can get wrong.
            raise InvalidTensor(" ".join(str(error).split())) from error
        finally:
            self._free.put(interpreter)

    def close(self) -> None:
        """Lets go of the interpreters."""
        while not self._free.empty():
            self._free.get()

    def _run(
        self,
        interpreter: Any,
        fed: Sequence[tuple[Any, Array]],
        signature: Signature,
        wanted: Sequence[str],
    ) -> dict[str, Array]:
        resized = False
        for detail, array in fed:
            index, shape = detail["index"], list(np.shape(array))
            if shape != _shape(interpreter, index):
                interpreter.resize_tensor_input(index, shape)
                resized = True
        if resized:
            interpreter.allocate_tensors()
        for detail, array in fed:
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        found = {}
        for alias in wanted:
            detail = self._outputs.get(_plain(signature.outputs[alias].name))
            if detail is None:
                raise ModelExecutionError(f"the model has no tensor for its output {alias}")
            found[alias] = interpreter.get_tensor(detail["index"])
        return found


def load(path: Path, interpreters: int) -> TfLiteModel:
    """The model of a .tflite file, with so many interpreters.

    Signatures are those of its metadata; without any there is one, "serving_default", with the
    names of the tensors as aliases.

    Raises:
      DamagedSavedModel: the file cannot be read as such a model.
      UnsupportedModel: it needs TensorFlow besides.
    """
    import tensorflow as tf

    try:
        content = path.read_bytes()
        made = []
        with warnings.catch_warnings():
            # The module is to move elsewhere some day.
            warnings.simplefilter("ignore")
            for _ in range(interpreters):
                interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
                interpreter.allocate_tensors()
                made.append(interpreter)
        found = _metadata(content) or {DEFAULT_SIGNATURE: _made_up(made[0])}
        return TfLiteModel(made, found)
    except (OSError, ValueError, RuntimeError, IndexError, TypeError, KeyError) as error:
        text = " ".join(str(error).split())
        if _SELECT_OPS in text:
            names = ", ".join(_SELECT_OP.findall(text)) or "not named"
            raise UnsupportedModel(
                f"{path} holds select ops, which are TensorFlow's own ({names}), and TensorFlow "
                f"Lite's interpreter does not run those here. Convert the model with built-in ops "
                f"alone, or serve its SavedModel without --prefer_tflite_model."
            ) from error
        raise DamagedSavedModel(f"cannot load {path}: {text}. Convert the model again.") from error


def _metadata(content: bytes) -> dict[str, Any]:
    from flatbuffers import flexbuffers
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAsModel(content, 0)
    for position in range(model.MetadataLength()):
        entry = model.Metadata(position)
        if entry.Name() != METADATA:
            continue
        data = model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()
        entries = flexbuffers.GetRoot(data).AsMap
        # Not read as text: a serialized message is none.
        return {
            key.AsKey: meta_graph_pb2.SignatureDef.FromString(_bytes(value))
            for key, value in zip(entries.Keys, entries.Values, strict=True)
        }
    return {}


def _bytes(value: Any) -> bytes:
    return bytes(value.AsStringBytes if value.IsString else value.AsBlob)


def _made_up(interpreter: Any) -> Any:
    from tensorflow.core.protobuf import meta_graph_pb2

    made = meta_graph_pb2.SignatureDef(method_name=PREDICT_METHOD)
    for details, tensors in (
        (interpreter.get_input_details(), made.inputs),
        (interpreter.get_output_details(), made.outputs),
    ):
        for each in details:
            info = tensors[each["name"]]
            info.name = each["name"]
            info.dtype = _type_number(each["dtype"])
            for size in each["shape_signature"]:
                info.tensor_shape.dim.add(size=int(size))
    return made


def _type_number(kind: Any) -> int:
    import tensorflow as tf

    return int(tf.as_dtype(kind).as_datatype_enum)


def _signature(proto: Any) -> Signature:
    return Signature(
        inputs={name: _spec(each) for name, each in sorted(proto.inputs.items())},
        outputs={name: _spec(each) for name, each in sorted(proto.outputs.items())},
        method_name=proto.method_name,
    )


def _spec(proto: Any) -> TensorSpec:
    sizes = tuple(None if each.size < 0 else int(each.size) for each in proto.tensor_shape.dim)
    shape = None if proto.tensor_shape.unknown_rank else sizes
    return TensorSpec(proto.name, dtypes.dtype_name(proto.dtype), shape)


def _by_name(details: Sequence[Any]) -> dict[str, Any]:
    return {_plain(each["name"]): each for each in details}


def _plain(name: str) -> str:
    return name.removesuffix(":0")


def _shape(interpreter: Any, index: int) -> list[int]:
    return [int(size) for size in interpreter.get_tensor(index).shape]


def _check_type(array: Array, detail: Any) -> None:
    import tensorflow as tf

    expected, actual = tf.as_dtype(detail["dtype"]).name, tf.as_dtype(array.dtype).name
    if expected != actual:
        raise InvalidTensor(
            f"Expects {detail['name']} to be {dtypes.runtime_name(expected)} but "
            f"{dtypes.runtime_name(actual)} is provided"
        )
