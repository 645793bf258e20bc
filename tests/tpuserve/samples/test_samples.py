"""Inputs that are made from a graph: what they look like, and that a model can take them."""

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

pytestmark = pytest.mark.slow

v1 = tf.compat.v1

# By hand: a row has 2 x 2 floats, one number, and lists of any length.
SPEC = {
    "pixels": tf.io.FixedLenFeature([2, 2], tf.float32),
    "age": tf.io.FixedLenFeature([], tf.int64),
    "words": tf.io.VarLenFeature(tf.string),
    "ids": tf.io.RaggedFeature(tf.int64),
    "at": tf.io.SparseFeature("index", "value", tf.float32, size=2),
}


def meta_graph(build: Callable[[], Mapping[str, Any]]) -> MetaGraphDef:
    """The metagraph of placeholders, by alias."""
    proto = MetaGraphDef()
    with tf.Graph().as_default() as graph:
        inputs = build()
        proto.graph_def.CopyFrom(graph.as_graph_def())
        for alias, each in inputs.items():
            info = v1.saved_model.build_tensor_info(each)
            proto.signature_def["s"].inputs[alias].CopyFrom(info)
    return proto


def plain(dtype: Any, shape: list[int | None] | None) -> MetaGraphDef:
    return meta_graph(lambda: {"x": v1.placeholder(dtype, shape)})


def rows_of(proto: MetaGraphDef, batch_size: int = 3) -> Any:
    return samples.generate_inputs(proto, "s", batch_size)["x"]


def test_an_open_batch_gets_the_batch_size_and_other_open_dimensions_a_small_number() -> None:
    made = rows_of(plain(tf.float32, [None, 4, None]))
    assert made.shape == (3, 4, 8)
    assert made.dtype == np.float32
    assert (made >= 0).all()
    assert (made < 1).all()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.bool, tf.int8])
def test_whole_numbers_are_0_or_1_of_the_asked_type(dtype: tf.DType) -> None:
    made = rows_of(plain(dtype, [None, 50]))
    assert made.dtype == dtype.as_numpy_dtype
    assert set(np.unique(made)) == {0, 1}


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16, tf.complex64])
def test_other_floats_have_their_type(dtype: tf.DType) -> None:
    assert rows_of(plain(dtype, [None])).dtype == dtype.as_numpy_dtype


def test_the_seed_decides() -> None:
    proto = plain(tf.float32, [None, 4])
    first, same, other = (
        samples.generate_inputs(proto, "s", 2, seed=seed)["x"] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_strings_that_are_not_parsed_are_short_words() -> None:
    made = rows_of(plain(tf.string, [None, 2]))
    assert made.shape == (3, 2)
    assert made.dtype == object
    assert all(isinstance(each, bytes) and 0 < len(each) < 8 for each in made.flat)


def test_strings_read_as_numbers_are_digits() -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        tf.strings.to_number(tf.strings.strip(x))
        return {"x": x}

    assert {each for each in rows_of(meta_graph(build), 20)} == {b"0", b"1"}


def test_a_scalar_stays_one_and_an_unknown_rank_is_a_batch() -> None:
    assert rows_of(plain(tf.float32, [])).shape == ()
    assert rows_of(plain(tf.float32, None)).shape == (3,)


def test_a_fixed_batch_refuses_another_size() -> None:
    proto = plain(tf.float32, [2, 4])
    assert not samples.has_open_batch_size(proto, "s")
    assert rows_of(proto, 2).shape == (2, 4)
    with pytest.raises(InvalidInput, match="takes 2 rows at a time, not 3"):
        rows_of(proto, 3)


def test_an_open_batch_is_open() -> None:
    assert samples.has_open_batch_size(plain(tf.float32, [None, 4]), "s")


def test_an_unknown_signature_says_which_there_are() -> None:
    with pytest.raises(SignatureNotFound, match="no signature 'other'; found s"):
        samples.generate_inputs(plain(tf.float32, []), "other", 1)


def test_a_sparse_input_is_refused() -> None:
    proto = meta_graph(lambda: {"x": v1.sparse_placeholder(tf.float32)})
    with pytest.raises(InvalidInput, match="several tensors"):
        rows_of(proto)


def parsed_by(proto: MetaGraphDef) -> Any:
    """What TensorFlow itself parses of the samples, with the features that a model expects."""
    made = rows_of(proto, 4)
    assert made.shape == (4,)
    return tf.io.parse_example(list(made), SPEC)


def check(parsed: Any) -> None:
    assert parsed["pixels"].shape == (4, 2, 2)
    assert set(parsed["age"].numpy()) <= {0, 1}
    assert all(parsed["words"].values.numpy())
    assert len(parsed["ids"].flat_values) >= 4
    assert tf.sparse.to_dense(parsed["at"]).shape == (4, 2)


def test_a_parsing_receiver_gets_the_examples_it_looks_for() -> None:
    def build() -> Mapping[str, Any]:
        x = v1.placeholder(tf.string, [None])
        tf.io.parse_example(tf.identity(x), SPEC)
        return {"x": x}

    check(parsed_by(meta_graph(build)))


def test_the_first_parsing_op_of_tensorflow_is_known_too() -> None:
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

    known = {each: SPEC[each] for each in ("words", "age", "pixels")}
    parsed = tf.io.parse_example(list(rows_of(meta_graph(build))), known)
    assert parsed["pixels"].shape == (3, 2, 2)


def exported(function: Callable[[Any], Any], directory: Path) -> MetaGraphDef:
    """The metagraph that TensorFlow 2 writes of a function of strings."""
    module = tf.Module()
    module.f = tf.function(function, input_signature=[tf.TensorSpec([None], tf.string, "x")])
    tf.saved_model.save(module, str(directory), signatures={"s": module.f})
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((directory / "saved_model.pb").read_bytes())
    return model.meta_graphs[0]


def test_parsing_within_functions_is_found(tmp_path: Path) -> None:
    check(parsed_by(exported(lambda x: {"y": tf.io.parse_example(x, SPEC)["pixels"]}, tmp_path)))


def test_examples_parsed_one_by_one_are_found(tmp_path: Path) -> None:
    def parse(each: Any) -> Any:
        return tf.io.parse_single_example(each, SPEC)["pixels"]

    def function(x: Any) -> Any:
        return {"y": tf.map_fn(parse, x, fn_output_signature=tf.float32)}

    check(parsed_by(exported(function, tmp_path)))
