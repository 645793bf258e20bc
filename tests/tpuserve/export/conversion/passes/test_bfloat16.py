"""Conversion to bfloat16: which nodes compute in bfloat16, and which stay float32."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests.tpuserve.export.conversion import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import InvalidSetting
from tpuserve.export import convert
from tpuserve.runtime import loader

pytestmark = pytest.mark.numeric

BFLOAT16 = tf.bfloat16.as_datatype_enum
HARDWARE = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)


class Recurrent(tf.Module):
    """Computes a recurrent layer, a loop with h = tanh(h u + x), and a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.u = tf.Variable([[0.5, 0.1], [0.2, 0.3]])
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 2], tf.float32, "x")])
    def serve(self, x: Any) -> Any:
        h = tf.zeros_like(x[:, 0])
        for step in tf.range(3):
            h = tf.tanh(h @ self.u + x[:, step])
        return {"y": h @ self.w}


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(Recurrent(), tmp_path_factory.mktemp("recurrent") / "model")


def functions(directory: Path) -> dict[str, list[Any]]:
    """Return function name → nodes, for the functions of the TPU metagraph."""
    saved_model = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    library = saved_model.meta_graphs[1].graph_def.library
    return {function.signature.name: list(function.node_def) for function in library.function}


def types(nodes: list[Any], op: str) -> set[int]:
    return {node.attr["T"].type for node in nodes if node.op == op}


def test_matrices_are_multiplied_in_bfloat16_also_in_a_loop(
    recurrent: Path, tmp_path: Path
) -> None:
    out = convert(recurrent, tmp_path / "out", bfloat16=True).out
    every = [node for nodes in functions(out).values() for node in nodes]
    assert types(every, "MatMul") == {BFLOAT16}
    assert types(every, "Tanh") == {BFLOAT16}


def test_results_have_the_precision_of_bfloat16(recurrent: Path, tmp_path: Path) -> None:
    out = convert(recurrent, tmp_path / "out", bfloat16=True).out
    x = np.random.default_rng(1).normal(size=(4, 3, 2)).astype(np.float32)
    cpu, tpu = (
        loader.load(str(out), tag_set, HARDWARE).run("serving_default", {"x": x})["y"]
        for tag_set in (tags.SERVE, tags.SERVE_TPU)
    )
    assert tpu.dtype == np.float32
    # bfloat16 numbers have 8 significant bits, so a product has a relative error of about 2^-8. The
    # outputs are at most 7. The bound allows for several products.
    assert 0 < np.abs(tpu - cpu).max() < 7 * 2**-6


def test_nodes_that_match_a_pattern_stay_float32(recurrent: Path, tmp_path: Path) -> None:
    out = convert(recurrent, tmp_path / "out", bfloat16=True, keep_float32=["^while/"]).out
    every = [node for nodes in functions(out).values() for node in nodes]
    assert types(every, "Tanh") == {tf.float32.as_datatype_enum}
    # The name of the product after the loop does not match the pattern.
    assert BFLOAT16 in types(every, "MatMul")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep_float32": ["x"]}, "everything computes in float32"),
        ({"bfloat16": True, "keep_float32": ["("]}, "is no regular expression"),
    ],
)
def test_patterns_are_checked(
    recurrent: Path, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(message)):
        convert(recurrent, tmp_path / "out", **arguments)
