"""Hazards of open batch sizes, with and without batch functions and a warm-up file."""

import pytest
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.verification import metagraph_hazards
from tpuserve.verification.node_hazards import PlacedNode

OPEN = Signature({"x": TensorSpec("x:0", "float32", (None, 2))}, {})
ON_TPU = [PlacedNode(NodeDef(name="y", op="Mul"), "f", "f", on_tpu=True)]


def messages(allowed: list[int], warm: list[int], names: tuple[str, ...] = ("a",)) -> list[str]:
    records = [
        WarmUpRecord("predict", name, {"x": TensorSpec("x", tf.float32.name, (size, 2))})
        for name in names
        for size in warm
    ]
    hazards = metagraph_hazards.find_recompilations(
        dict.fromkeys(names, ON_TPU), dict.fromkeys(names, OPEN), allowed, records
    )
    return [f"{hazard.severity}: {hazard.message}" for hazard in hazards]


def test_an_open_batch_is_reported_once_for_all_signatures() -> None:
    (text,) = messages([], [], ("a", "b"))
    assert text.startswith("warning: signatures 'a', 'b' accept any batch size: a TPU recompiles")
    assert text.endswith(
        "export with a warm-up file: warm_up=True, batch_config=BatchConfig(num_batch_threads=2, "
        "max_batch_size=64, batch_timeout_micros=2000, allowed_batch_sizes=[1, 8, 64])."
    )


def test_the_sizes_of_a_warm_up_file_are_reported() -> None:
    (text,) = messages([], [1, 8])
    assert "accepts any batch size, and the warm-up file has 1, 8: " in text
    assert "export with a warm-up file" not in text


@pytest.mark.parametrize(
    ("warm", "end"),
    [
        ([], ": one compilation each. Export with a warm-up file."),
        ([1, 8], ": one compilation each, all of them during warm-up."),
        ([1], ": one compilation each. The warm-up file lacks 8: add these sizes."),
    ],
    ids=str,
)
def test_allowed_sizes_are_a_note(warm: list[int], end: str) -> None:
    (text,) = messages([1, 8], warm)
    assert text == f"note: signature 'a' is compiled for batch sizes 1, 8{end}"
