"""Loads TensorFlow Lite models, for the flag --prefer_tflite_model."""

import re
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from server.admission.cancellation import Cancellation
from server.servables import tflite_check
from server.servables.servable import Array
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidTensor,
    ModelExecutionError,
    UnsupportedModel,
)
from tpuserve.graph.state_writes import Write
from tpuserve.saved_model import dtypes
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.metagraph import signature_from_proto
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature

# The name of the entry in a .tflite file's metadata that holds the signatures. The entry is a
# flexbuffer map: signature name → serialised SignatureDef.
SIGNATURE_METADATA = b"signature_defs_metadata"
# The words that show, in an error message of the interpreter, that the model needs ops of
# TensorFlow.
_SELECT_OPS = "Select TensorFlow op"
_SELECT_OP = re.compile(r"\(Flex(\w+)\)")
# The exceptions that the interpreter and the functions that read the file's fields raise for a
# damaged file. They are reported as DamagedSavedModel.
_DAMAGE_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    IndexError,
    TypeError,
    KeyError,
    struct.error,
)


class TfLiteModel:
    """A TensorFlow Lite model with several interpreters, each of which runs one request at a time.

    Args:
      write: how a run changes a state that the interpreter keeps; None if it only reads.
    """

    def __init__(
        self,
        interpreters: Sequence[Any],
        signature_defs: Mapping[str, Any],
        write: Write | None = None,
    ) -> None:
        self.choice = f"TensorFlow Lite on CPU ({len(interpreters)} interpreters)"
        self.signature_defs = signature_defs
        self.signatures = {
            name: replace(signature_from_proto(definition), write=write)
            for name, definition in signature_defs.items()
        }
        self._inputs = _by_name(interpreters[0].get_input_details())
        self._outputs = _by_name(interpreters[0].get_output_details())
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for interpreter in interpreters:
            self._idle.put(interpreter)

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        """Compute the outputs of a signature; the errors are those of `LoadedModel.run`.

        Args:
          inputs: alias → array of the signature's dtype, with any shape that the model can compute.
          cancellation: cancels the request, if it still waits for an interpreter; None if the
            request cannot be cancelled.
        """
        signature = signatures.find_signature(self.signatures, signature_name)
        signature.check_inputs(inputs.keys())
        aliases = list(signature.outputs if output_names is None else output_names)
        signature.check_outputs(aliases)
        feeds = [
            (self._inputs[_op_name(signature.inputs[alias].name)], array)
            for alias, array in inputs.items()
        ]
        for detail, array in feeds:
            _check_type(array, detail)
        interpreter = self._idle.get()
        try:
            if cancellation is not None:
                cancellation.raise_if_cancelled()
            return self._invoke(interpreter, feeds, signature, aliases)
        except (ValueError, RuntimeError) as error:
            # Report every error as InvalidTensor, because the interpreter's errors have no status
            # code.
            raise InvalidTensor(" ".join(str(error).split())) from error
        finally:
            self._idle.put(interpreter)

    def close(self) -> None:
        """Free the interpreters and their memory."""
        while not self._idle.empty():
            self._idle.get()

    def _invoke(
        self,
        interpreter: Any,
        feeds: Sequence[tuple[Any, Array]],
        signature: Signature,
        aliases: Sequence[str],
    ) -> dict[str, Array]:
        resized = False
        for detail, array in feeds:
            index, shape = detail["index"], list(np.shape(array))
            if shape != _shape(interpreter, index):
                interpreter.resize_tensor_input(index, shape)
                resized = True
        if resized:
            interpreter.allocate_tensors()
        for detail, array in feeds:
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        outputs = {}
        for alias in aliases:
            detail = self._outputs.get(_op_name(signature.outputs[alias].name))
            if detail is None:
                raise ModelExecutionError(f"the model has no tensor for its output {alias}")
            outputs[alias] = interpreter.get_tensor(detail["index"])
        return outputs


def load_tflite_model(
    path: Path,
    num_interpreters: int,
    *,
    forbid_unsafe_ops: bool = False,
    max_tensor_bytes: int = 0,
) -> TfLiteModel:
    """Load a TensorFlow Lite model from a .tflite file.

    The signatures are those in the file's metadata.

    Args:
      max_tensor_bytes: the largest size of the tensors of an interpreter, in bytes, without
        constants; 0 for no limit.

    Raises:
      UnsafeModel: the model has ops that are unknown or do more than compute.
    """
    import tensorflow as tf

    try:
        content = path.read_bytes()
        if forbid_unsafe_ops:
            tflite_check.check_ops(content, path)
        if max_tensor_bytes:
            tflite_check.check_tensor_sizes(content, path, max_tensor_bytes)
        interpreters = []
        with warnings.catch_warnings():
            # Ignore TensorFlow's deprecation warning that tf.lite will move to another package.
            warnings.simplefilter("ignore")
            for _ in range(num_interpreters):
                interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
                interpreter.allocate_tensors()
                interpreters.append(interpreter)
        signature_defs = _signatures_from_metadata(content) or {
            DEFAULT_SIGNATURE: _signature_from_tensors(interpreters[0])
        }
        return TfLiteModel(interpreters, signature_defs, tflite_check.find_write(content))
    except _DAMAGE_ERRORS as error:
        text = " ".join(str(error).split())
        if _SELECT_OPS in text:
            op_names = ", ".join(_SELECT_OP.findall(text)) or "not named"
            raise UnsupportedModel(
                f"{path} holds select ops, which are TensorFlow's own ({op_names}), and TensorFlow "
                f"Lite's interpreter does not run them here. Convert the model with built-in ops "
                f"alone, or serve its SavedModel without --prefer_tflite_model."
            ) from error
        raise DamagedSavedModel(f"cannot load {path}: {text}. Convert the model again.") from error


def _signatures_from_metadata(content: bytes) -> dict[str, Any]:
    from flatbuffers import flexbuffers
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAsModel(content, 0)
    for position in range(model.MetadataLength()):
        entry = model.Metadata(position)
        if entry.Name() != SIGNATURE_METADATA:
            continue
        data = model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()
        entries = flexbuffers.GetRoot(data).AsMap
        # Read the values as bytes even if their type is string, because they are serialised
        # SignatureDef messages.
        return {
            key.AsKey: meta_graph_pb2.SignatureDef.FromString(_flexbuffer_bytes(value))
            for key, value in zip(entries.Keys, entries.Values, strict=True)
        }
    return {}


def _flexbuffer_bytes(value: Any) -> bytes:
    return bytes(value.AsStringBytes if value.IsString else value.AsBlob)


def _signature_from_tensors(interpreter: Any) -> Any:
    from tensorflow.core.protobuf import meta_graph_pb2

    signature_def = meta_graph_pb2.SignatureDef(method_name=PREDICT_METHOD)
    for details, tensors in (
        (interpreter.get_input_details(), signature_def.inputs),
        (interpreter.get_output_details(), signature_def.outputs),
    ):
        for detail in details:
            info = tensors[detail["name"]]
            info.name = detail["name"]
            info.dtype = _type_number(detail["dtype"])
            for size in detail["shape_signature"]:
                info.tensor_shape.dim.add(size=int(size))
    return signature_def


def _type_number(dtype: Any) -> int:
    import tensorflow as tf

    return int(tf.as_dtype(dtype).as_datatype_enum)


def _by_name(details: Sequence[Any]) -> dict[str, Any]:
    return {_op_name(detail["name"]): detail for detail in details}


def _op_name(name: str) -> str:
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
