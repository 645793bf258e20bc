"""Hazards of TPU metagraphs: what a TPU would refuse or do differently."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tests.tpuserve.verification import exports
from tpuserve.export import inference_on_tpu
from tpuserve.lowering.rules import xla_kernels
from tpuserve.verification import Hazard, node_hazards, verify
from tpuserve.verification.node_hazards import PlacedNode

v1 = tf.compat.v1

FIXED = {"x": tf.TensorSpec([4], tf.float32)}


def hazards_of(
    tmp_path: Path, model: exports.Model, inputs: Mapping[str, Any] = FIXED, **options: Any
) -> list[Hazard]:
    directory = exports.write_export(tmp_path, model, inputs=inputs, **options)
    return list(verify(directory, runs=0).hazards)


def test_a_usual_model_of_fixed_shape_has_no_hazards(tmp_path: Path) -> None:
    assert hazards_of(tmp_path, lambda inputs: {"y": tf.tanh(inputs["x"])}) == []


def test_an_op_is_named_with_its_node_its_function_and_its_line(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        text = tf.strings.as_string(inputs["x"], name="spelled")
        return {"y": tf.strings.to_hash_bucket_fast(text, 7, name="hashed")}

    hazards = {
        hazard.node: hazard for hazard in hazards_of(tmp_path, model) if hazard.severity == "error"
    }
    assert [hazards[node].op for node in ("spelled", "hashed")] == [
        "AsString",
        "StringToHashBucketFast",
    ]
    assert "tpu_computation" in hazards["spelled"].function
    assert "test_metagraph_hazards.py:" in (hazards["spelled"].line or "")


def test_an_outside_compiled_op_is_no_hazard(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        x = inputs["x"] + 1.0

        def on_host(x: Any) -> Any:
            return tf.strings.as_string(x)

        # Both metagraphs can use this model: outside of a TPU computation, outside_compilation just
        # calls the function.
        return {"text": v1.tpu.outside_compilation(on_host, x), "y": x}

    assert hazards_of(tmp_path, model) == []


def test_an_op_in_a_function_that_a_computation_calls_is_named(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        x = inputs["x"]

        def spelled() -> Any:
            text = tf.strings.as_string(x, name="within")
            return tf.strings.to_number(text, tf.float32)

        return {"y": tf.cond(tf.reduce_sum(x) > 0, spelled, lambda: x)}

    nodes = [hazard.op for hazard in hazards_of(tmp_path, model) if hazard.severity == "error"]
    assert sorted(nodes) == ["AsString", "StringToNumber"]


def test_64_bit_types_are_reported_once_per_computation(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        wide = tf.cast(inputs["x"], tf.float64)
        return {"y": wide * wide, "class": tf.argmax(inputs["x"])}

    hazards = hazards_of(tmp_path, model)
    assert [(hazard.kind, hazard.severity) for hazard in hazards] == [
        ("float64", "warning"),
        ("int64", "note"),
    ]
    assert "in 1 op (ArgMax)" in hazards[1].message


def test_open_dimensions_are_reported_as_recompilations(tmp_path: Path) -> None:
    inputs = {"x": tf.TensorSpec([None, None], tf.float32)}
    hazards = hazards_of(tmp_path, lambda inputs: {"y": inputs["x"] + 1.0}, inputs)
    assert [hazard.kind for hazard in hazards] == ["recompilation", "recompilation"]
    assert "leaves open dimension 1 of 'x'" in hazards[0].message
    assert "accepts any batch size" in hazards[1].message


def test_a_model_without_a_tpu_computation_is_reported(tmp_path: Path) -> None:
    hazards = hazards_of(tmp_path, lambda inputs: {"y": inputs["x"] + 1.0}, on_host=True)
    assert [hazard.kind for hazard in hazards] == ["no_computation"]


def test_random_ops_are_reported(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"y": inputs["x"] + tf.random.normal([4])}

    (hazard,) = hazards_of(tmp_path, model)
    assert (hazard.kind, hazard.op) == ("random", "RandomStandardNormal")


def test_shapes_that_depend_on_values_are_reported(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"y": tf.shape(tf.boolean_mask(inputs["x"], inputs["x"] > 0.5))}

    kinds = {hazard.kind: hazard.op for hazard in hazards_of(tmp_path, model)}
    assert kinds["dynamic_shape"] == "Where"


def test_a_shape_from_an_input_is_reported(tmp_path: Path) -> None:
    inputs = {**FIXED, "n": tf.TensorSpec([1], tf.int32)}

    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"y": tf.fill(inputs["n"] + 2, 1.0, name="filled")}

    hazards = [
        hazard for hazard in hazards_of(tmp_path, model, inputs) if hazard.kind == "constant_input"
    ]
    assert [(hazard.op, hazard.node, hazard.severity) for hazard in hazards] == [
        ("Fill", "filled", "warning")
    ]


def test_strings_that_xla_does_not_refuse_are_reported(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        words = tf.constant(["a", "b"], name="words")
        with tf.control_dependencies([words]):
            return {"y": inputs["x"] + 1.0}

    (hazard,) = hazards_of(tmp_path, model)
    assert (hazard.kind, hazard.op, hazard.severity) == ("strings", "Const", "warning")


def test_only_computations_have_hazards(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        text = tf.strings.as_string(inputs["x"])
        x = tf.strings.to_number(text)
        return {"y": inference_on_tpu(lambda x: 2.0 * x, [x], 1, 4, 100, [4])[0]}

    hazards = hazards_of(
        tmp_path, lambda inputs: {"y": 2.0 * inputs["x"]}, candidate=model, on_host=True
    )
    assert hazards == []


def constant(*shape: int) -> PlacedNode:
    node = NodeDef(name="table", op="Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0.0, shape=shape))
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    return PlacedNode(node, "f", "f", on_tpu=True)


def test_more_than_two_gib_of_constants_are_refused() -> None:
    # An element has 4 bytes, so two constants of 2**28 elements have exactly 2 GiB.
    (hazard,) = node_hazards.find_large_constants([constant(2**28), constant(2**28), constant(1)])
    assert (hazard.kind, hazard.severity, hazard.node) == ("constants", "error", "table")
    assert str(2**31 + 4) in hazard.message
    assert list(node_hazards.find_large_constants([constant(2**28), constant(2**28)])) == []


@pytest.mark.parametrize(
    ("op", "dtype", "can"),
    [
        ("MatMul", tf.float32, True),
        ("AddV2", tf.float32, True),
        ("AddV2", tf.string, False),
        ("AsString", tf.float32, False),
        ("LookupTableFindV2", tf.int64, False),
    ],
)
def test_the_registry_knows_what_xla_compiles(op: str, dtype: tf.DType, *, can: bool) -> None:
    node = NodeDef(op=op)
    node.attr["T"].type = dtype.as_datatype_enum
    assert xla_kernels.has_xla_kernel(node) is can


def test_an_output_without_finite_numbers_is_reported(tmp_path: Path) -> None:
    def model(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"y": tf.math.log(-1.0 - inputs["x"]), "z": inputs["x"] + 1.0}

    (hazard,) = hazards_of(tmp_path, model)
    assert (hazard.kind, hazard.severity) == ("not_finite", "warning")
    assert "4 of 4 values of output 'y' of signature 'serving_default' are NaN" in hazard.message
    assert "--inputs" in hazard.message
