"""TensorFlow Lite models are served with the signatures in their files, or a default one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf
from flatbuffers import flexbuffers
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.lite.python import schema_py_generated as schema

from server.config.settings import Settings
from server.servables import tflite_check, tflite_loader
from server.servables.saved_model_loader import SavedModelLoader
from server.servables.tflite_loader import TfLiteModel
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidInputNames,
    InvalidTensor,
    ModelTooLarge,
    UnsafeModel,
    UnsupportedModel,
)


@pytest.fixture(scope="module")
def content() -> bytes:
    """Return a TensorFlow Lite model that computes x / 2 + 2 for any number of rows."""

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
    def half_plus_two(x: tf.Tensor) -> tf.Tensor:
        return x / 2 + 2

    function = half_plus_two.get_concrete_function()
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function]).convert())


def with_signature(content: bytes, name: str, signature: Any) -> bytes:
    """Return the model with a signature in its metadata, as TensorFlow Serving's tool does."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(_map(name, signature.SerializeToString()), np.uint8)
    model.buffers.append(buffer)
    metadata = schema.MetadataT()
    metadata.name, metadata.buffer = tflite_loader.SIGNATURE_METADATA, len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), metadata]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _map(name: str, value: bytes) -> bytes:
    encoded = flexbuffers.Builder()
    with encoded.Map():
        encoded.Key(name)
        encoded.Blob(value)
    return bytes(encoded.Finish())


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "3" / "model.tflite"
    path.parent.mkdir()
    path.write_bytes(content)
    return path


@pytest.fixture
def model(path: Path) -> TfLiteModel:
    return tflite_loader.load_tflite_model(path, 2)


X = np.array([[1], [2], [5]], np.float32)


class Counter(tf.Module):
    """Adds the number of runs so far."""

    def __init__(self) -> None:
        super().__init__()
        self.n = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
    def call(self, x: tf.Tensor) -> tf.Tensor:
        self.n.assign_add(1.0)
        return x + self.n


@pytest.mark.slow
def test_model_that_updates_a_variable_is_known_to_write(
    tmp_path: Path, model: TfLiteModel
) -> None:
    assert all(signature.write is None for signature in model.signatures.values())
    module = Counter()
    function = module.call.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.experimental_enable_resource_variables = True
    path = tmp_path / "counter.tflite"
    path.write_bytes(converter.convert())
    (signature,) = tflite_loader.load_tflite_model(path, 1).signatures.values()
    assert signature.write is not None
    assert signature.write.kind == "updates a variable"


def test_model_without_signatures_has_tensors_for_aliases(model: TfLiteModel) -> None:
    (signature,) = model.signatures.values()
    assert [str(spec) for spec in signature.inputs.values()] == ["float32 [?, 1]"]
    assert list(signature.inputs) == ["x"]
    (output,) = signature.outputs
    answer = model.run("serving_default", {"x": X})
    assert answer[output].tolist() == [[2.5], [3.0], [4.5]]


def test_signature_of_the_metadata_is_served(path: Path, content: bytes) -> None:
    (output,) = tflite_loader.load_tflite_model(path, 1).signatures["serving_default"].outputs
    signature = meta_graph_pb2.SignatureDef(method_name="tensorflow/serving/predict")
    for tensors, alias, name in ((signature.inputs, "a", "x:0"), (signature.outputs, "b", output)):
        tensors[alias].name = name
        tensors[alias].dtype = tf.float32.as_datatype_enum
    path.write_bytes(with_signature(content, "serving_default", signature))
    model = tflite_loader.load_tflite_model(path, 1)
    assert model.signature_defs == {"serving_default": signature}
    assert model.run("serving_default", {"a": X})["b"].tolist() == [[2.5], [3.0], [4.5]]


def test_requests_of_any_size_share_the_interpreters(model: TfLiteModel) -> None:
    def ask(rows: int) -> float:
        (answer,) = model.run("serving_default", {"x": X[:1].repeat(rows, axis=0)}).values()
        assert answer.shape == (rows, 1)
        return float(answer.sum())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(1, 9))) == [2.5 * rows for rows in range(1, 9)]


def test_wrong_input_is_refused_and_the_next_is_answered(model: TfLiteModel) -> None:
    with pytest.raises(InvalidTensor, match="Expects x to be float but double is provided"):
        model.run("serving_default", {"x": X.astype(np.float64)})
    with pytest.raises(InvalidInputNames):
        model.run("serving_default", {"z": X})
    with pytest.raises(InvalidTensor):
        model.run("serving_default", {"x": np.zeros([2, 3, 4, 5, 6, 7, 8], np.float32)})
    assert len(model.run("serving_default", {"x": X})) == 1


def test_damaged_file_is_told(path: Path) -> None:
    path.write_bytes(b"nonsense")
    with pytest.raises(DamagedSavedModel, match=f"cannot load {path}"):
        tflite_loader.load_tflite_model(path, 1)


def test_file_is_preferred_where_that_is_asked(path: Path) -> None:
    settings = Settings(path.parent.parent, prefer_tflite_model=True, num_tflite_pools=1)
    assert isinstance(SavedModelLoader(settings)(path.parent), TfLiteModel)


def test_select_ops_are_named_and_refused(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def lower(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.lower(x)

    converter = tf.lite.TFLiteConverter.from_concrete_functions([lower.get_concrete_function()])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.SELECT_TF_OPS]
    path = tmp_path / "3" / "model.tflite"
    path.parent.mkdir()
    path.write_bytes(converter.convert())
    with pytest.raises(UnsupportedModel, match=r"TensorFlow's own \(StringLower\).* built-in ops"):
        tflite_loader.load_tflite_model(path, 1)
    with pytest.raises(
        UnsafeModel, match=r"not known to compute only: FlexIdentity, FlexStringLower"
    ):
        serve(path)


def serve(path: Path, **flags: Any) -> Any:
    """Load the model as a server with these flags does."""
    settings = Settings(path.parent.parent, prefer_tflite_model=True, num_tflite_pools=1, **flags)
    return SavedModelLoader(settings)(path.parent)


def with_op(content: bytes, number: int, custom_code: bytes | None = None) -> bytes:
    """Return the model with its first op replaced by another op."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    code = model.operatorCodes[0]
    code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
    code.customCode = custom_code
    return pack(model)


def pack(model: Any) -> bytes:
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize(
    ("number", "custom_code", "text"),
    [
        (schema.BuiltinOperator.CUSTOM, b"ReadFile", "ReadFile"),
        (schema.BuiltinOperator.CUSTOM, None, "a custom op without a name"),
        (schema.BuiltinOperator.DELEGATE, None, "DELEGATE"),
        (schema.BuiltinOperator.STABLEHLO_CUSTOM_CALL, None, "STABLEHLO_CUSTOM_CALL"),
        (tflite_check.LAST_REVIEWED_OP + 1, None, "built-in op 210"),
    ],
)
def test_op_that_is_not_known_to_compute_only_is_refused(
    path: Path, content: bytes, number: int, custom_code: bytes | None, text: str
) -> None:
    path.write_bytes(with_op(content, number, custom_code))
    with pytest.raises(UnsafeModel, match=f"not known to compute only: {text}. Convert"):
        serve(path)
    with pytest.raises(DamagedSavedModel):
        serve(path, forbid_unsafe_ops=False)


def test_custom_op_of_tensorflow_lite_itself_is_allowed(content: bytes) -> None:
    own = with_op(content, schema.BuiltinOperator.CUSTOM, b"TFLite_Detection_PostProcess")
    tflite_check.check_ops(own, Path("model.tflite"))


def test_every_built_in_op_is_reviewed() -> None:
    """If this fails with a new release of TensorFlow, review the new ops and raise the number."""
    numbers = [value for value in vars(schema.BuiltinOperator).values() if isinstance(value, int)]
    assert max(numbers) <= tflite_check.LAST_REVIEWED_OP


def test_tensors_of_a_size_that_the_file_makes_up_are_refused(path: Path, content: bytes) -> None:
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for tensor in model.subgraphs[0].tensors:
        if model.buffers[tensor.buffer].data is None:
            tensor.shape = np.array([1 << 30, 1 << 30], np.int32)
    path.write_bytes(pack(model))
    with pytest.raises(ModelTooLarge, match=r"asks for [0-9,]+ bytes of tensors; the limit is 1,0"):
        serve(path)


def test_file_that_is_cut_off_is_damaged(path: Path, content: bytes) -> None:
    for length in (4, 20, len(content) // 2):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedSavedModel):
            serve(path)
