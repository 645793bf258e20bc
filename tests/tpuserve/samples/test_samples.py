"""Generated inputs fit the signature, and a model accepts them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

from tpuserve import samples
from tpuserve.errors import InvalidInput, SignatureNotFound

v1 = tf.compat.v1

# A row has 2 x 2 floats, an integer, and lists of any length.
SPEC = {
    "pixels": tf.io.FixedLenFeature([2, 2], tf.float32),
    "age": tf.io.FixedLenFeature([], tf.int64),
    "words": tf.io.VarLenFeature(tf.string),
    "ids": tf.io.RaggedFeature(tf.int64),
    "at": tf.io.SparseFeature("index", "value", tf.float32, size=2),
}


def meta_graph(build: Callable[[], Mapping[str, Any]]) -> MetaGraphDef:
    """Return a metagraph with a signature "s"; `build` returns input alias → placeholder."""
    proto = MetaGraphDef()
    with tf.Graph().as_default() as graph:
        inputs = build()
        proto.graph_def.CopyFrom(graph.as_graph_def())
        for alias, tensor in inputs.items():
            info = v1.saved_model.build_tensor_info(tensor)
            proto.signature_def["s"].inputs[alias].CopyFrom(info)
    return proto


def plain(dtype: Any, shape: list[int | None] | None) -> MetaGraphDef:
    return meta_graph(lambda: {"x": v1.placeholder(dtype, shape)})


def rows_of(proto: MetaGraphDef, batch_size: int = 3) -> Any:
    return samples.generate_inputs(proto, "s", batch_size)["x"]


def test_open_batch_has_the_batch_size_and_other_open_dimensions_a_small_size() -> None:
    array = rows_of(plain(tf.float32, [None, 4, None]))
    assert array.shape == (3, 4, 8)
    assert array.dtype == np.float32
    assert (array >= 0).all()
    assert (array < 1).all()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.bool, tf.int8])
def test_integers_are_0_or_1_and_have_their_dtype(dtype: tf.DType) -> None:
    array = rows_of(plain(dtype, [None, 50]))
    assert array.dtype == dtype.as_numpy_dtype
    assert set(np.unique(array)) == {0, 1}


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16, tf.complex64])
def test_floats_have_their_dtype(dtype: tf.DType) -> None:
    assert rows_of(plain(dtype, [None])).dtype == dtype.as_numpy_dtype


def test_inputs_depend_on_the_seed_alone() -> None:
    proto = plain(tf.float32, [None, 4])
    first, same, other = (
        samples.generate_inputs(proto, "s", 2, seed=seed)["x"] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_strings_that_are_not_parsed_are_short_words() -> None:
    array = rows_of(plain(tf.string, [None, 2]))
    assert array.shape == (3, 2)
    assert array.dtype == object
    assert all(isinstance(word, bytes) and 0 < len(word) < 8 for word in array.flat)


def test_strings_read_as_numbers_are_digits() -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        tf.strings.to_number(tf.strings.strip(x))
        return {"x": x}

    assert set(rows_of(meta_graph(build), 20)) == {b"0", b"1"}


def test_scalar_stays_a_scalar_and_an_unknown_rank_becomes_a_batch() -> None:
    assert rows_of(plain(tf.float32, [])).shape == ()
    assert rows_of(plain(tf.float32, None)).shape == (3,)


def test_fixed_batch_refuses_another_size() -> None:
    proto = plain(tf.float32, [2, 4])
    assert not samples.has_open_batch_size(proto, "s")
    assert rows_of(proto, 2).shape == (2, 4)
    with pytest.raises(InvalidInput, match="takes 2 rows at a time, not 3"):
        rows_of(proto, 3)


def test_batch_is_open_if_its_size_is_unknown() -> None:
    assert samples.has_open_batch_size(plain(tf.float32, [None, 4]), "s")


def test_unknown_signature_is_an_error_that_lists_the_signatures() -> None:
    with pytest.raises(SignatureNotFound, match="no signature 'other'; found s"):
        samples.generate_inputs(plain(tf.float32, []), "other", 1)


def test_sparse_input_is_refused() -> None:
    proto = meta_graph(lambda: {"x": v1.sparse_placeholder(tf.float32)})
    with pytest.raises(InvalidInput, match="several tensors"):
        rows_of(proto)


def parsed_by(proto: MetaGraphDef) -> Any:
    """Parse generated tf.Examples by tf.io.parse_example, with the features of `SPEC`."""
    array = rows_of(proto, 4)
    assert array.shape == (4,)
    return tf.io.parse_example(list(array), SPEC)


def check_features(parsed: Any) -> None:
    assert parsed["pixels"].shape == (4, 2, 2)
    assert set(parsed["age"].numpy()) <= {0, 1}
    assert all(parsed["words"].values.numpy())
    assert len(parsed["ids"].flat_values) >= 4
    assert tf.sparse.to_dense(parsed["at"]).shape == (4, 2)


def test_parsing_receiver_gets_examples_with_its_features() -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        tf.io.parse_example(tf.identity(x), SPEC)
        return {"x": x}

    check_features(parsed_by(meta_graph(build)))


def test_features_of_the_first_version_of_the_parsing_op_are_found() -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        tf.raw_ops.ParseExample(
            serialized=x,
            names=tf.constant([], tf.string),
            sparse_keys=["words"],
            dense_keys=["age", "pixels"],
            dense_defaults=[tf.constant([], tf.int64), tf.constant([], tf.float32)],
            sparse_types=[tf.string],
            dense_shapes=[[], [2, 2]],
        )
        return {"x": x}

    known = {key: SPEC[key] for key in ("words", "age", "pixels")}
    parsed = tf.io.parse_example(list(rows_of(meta_graph(build))), known)
    assert parsed["pixels"].shape == (3, 2, 2)


@pytest.mark.parametrize("decode", [tf.io.decode_jpeg, tf.io.decode_png, tf.io.decode_image])
def test_strings_decoded_as_pictures_are_picture_files(decode: Callable[[Any], Any]) -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        tf.map_fn(lambda data: tf.shape(decode(data)), x, fn_output_signature=tf.int32)
        return {"x": x}

    pictures = rows_of(meta_graph(build), 2)
    assert [decode(picture).shape for picture in pictures] == [(8, 8, 3)] * 2
    assert pictures[0] != pictures[1]


def test_search_ends_in_a_graph_with_a_cycle() -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        keys = tf.identity(tf.constant(["age"]), name="keys")
        tf.raw_ops.ParseExampleV2(
            serialized=x,
            names=tf.constant([], tf.string),
            sparse_keys=keys,
            dense_keys=tf.constant([], tf.string),
            ragged_keys=tf.constant([], tf.string),
            dense_defaults=[],
            num_sparse=1,
            sparse_types=[tf.int64],
            ragged_value_types=[],
            ragged_split_types=[],
            dense_shapes=[],
        )
        return {"x": x}

    proto = meta_graph(build)
    (identity,) = (node for node in proto.graph_def.node if node.name == "keys")
    identity.input[0] = "keys"
    assert rows_of(proto, 2).shape == (2,)


def save_function(function: Callable[[Any], Any], directory: Path) -> MetaGraphDef:
    """Save a function of strings by TensorFlow 2; return its metagraph."""
    module = tf.Module()
    module.f = tf.function(function, input_signature=[tf.TensorSpec([None], tf.string, "x")])
    tf.saved_model.save(module, str(directory), signatures={"s": module.f})
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((directory / "saved_model.pb").read_bytes())
    return model.meta_graphs[0]


def test_features_parsed_in_functions_are_found(tmp_path: Path) -> None:
    check_features(
        parsed_by(save_function(lambda x: {"y": tf.io.parse_example(x, SPEC)["pixels"]}, tmp_path))
    )


def test_features_of_examples_parsed_one_by_one_are_found(tmp_path: Path) -> None:
    def parse(example: Any) -> Any:
        return tf.io.parse_single_example(example, SPEC)["pixels"]

    def function(x: Any) -> Any:
        return {"y": tf.map_fn(parse, x, fn_output_signature=tf.float32)}

    check_features(parsed_by(save_function(function, tmp_path)))


@pytest.mark.parametrize(
    ("shape", "feature_size", "batch_size", "count"),
    [
        ([None, 1 << 50], None, 3, 1 << 50),
        ([1 << 50], None, 1 << 50, 1 << 50),
        ([None] * 10, None, 3, 8**9),
        ([None], 1 << 50, 3, 1 << 50),
        ([2], 1 << 20, 2, 1 << 21),
    ],
)
def test_no_values_are_made_of_a_size_that_a_model_merely_declares(
    shape: list[int | None], feature_size: int | None, batch_size: int, count: int
) -> None:
    def build() -> Mapping[str, Any]:
        if feature_size is None:
            return {"x": v1.placeholder(tf.float32, shape)}
        examples = v1.placeholder(tf.string, shape)
        tf.io.parse_example(examples, {"f": tf.io.FixedLenFeature([feature_size], tf.int64)})
        return {"x": examples}

    with pytest.raises(InvalidInput, match=f"'x' has {count} values in a row, too many"):
        rows_of(meta_graph(build), batch_size)


def test_array_of_too_many_dimensions_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'x' cannot be a NumPy array: .* found 65"):
        rows_of(plain(tf.float32, [None, *[1] * 64]))
