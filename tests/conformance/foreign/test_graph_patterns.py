"""Graphs with patterns of other exporters are inspected, verified, and run by every runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.foreign import graph_patterns
from tests.conformance.foreign.graph_patterns import PATTERNS, SPEC, X, example, write_version_1
from tpuserve.devices import TpuSystem
from tpuserve.errors import ModelExecutionError, UnsupportedModel
from tpuserve.export import export
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph
from tpuserve.verification import verify

SYSTEMS = {
    "session": (TpuSystem(), None),
    "xla": (TpuSystem(), "xla"),
    "lowered": (TpuSystem(1, 1, is_emulated=True), None),
    "pjrt": (TpuSystem(1, 1, pjrt_platform="cpu"), None),
}


@pytest.fixture(scope="module", params=PATTERNS)
def pattern(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """Export a pattern with both metagraphs; return the directory and the output for `X`."""
    make, expected = PATTERNS[request.param]
    return Path(export(make(), {"x": SPEC}, tmp_path_factory.mktemp("pattern"))), expected


@pytest.mark.parametrize("engine", SYSTEMS)
def test_every_engine_computes_the_pattern(pattern: tuple[Path, Any], engine: str) -> None:
    directory, expected = pattern
    hardware, runtime = SYSTEMS[engine]
    if engine in ("xla", "pjrt"):
        pytest.importorskip("jax")
    model = loader.load(directory, hardware=hardware, runtime=runtime)
    try:
        assert model.run("serving_default", {"x": X})["y"].tolist() == expected.tolist()
    finally:
        model.close()


def test_inspect_shows_a_computation_and_verify_passes(pattern: tuple[Path, Any]) -> None:
    directory, _ = pattern
    assert [
        metagraph.has_tpu_computation for metagraph in metagraph.read_metagraphs(directory)
    ] == [
        False,
        True,
    ]
    report = verify(directory, batch_sizes=[2], runs=0)
    assert report.passed, report.signatures
    assert report.largest_absolute == 0


@pytest.mark.parametrize("runtime", [None, "xla"])
def test_control_flow_of_version_1_runs(tmp_path: Path, runtime: str | None) -> None:
    if runtime == "xla":
        pytest.importorskip("jax")
    directory = write_version_1(tmp_path, graph_patterns.switch_and_merge)
    assert {"Switch", "Merge", "Enter"} <= set(metagraph.read_metagraphs(directory)[0].host_ops)
    model = loader.load(directory, hardware=TpuSystem(), runtime=runtime)
    try:
        # The sum 12 becomes 192 by four doublings.
        assert model.run("serving_default", {"x": X})["y"].tolist() == (16 * X).tolist()
        # The sum 104 is not doubled, and is negated.
        large = np.full([1, 4], 26, np.float32)
        assert model.run("serving_default", {"x": large})["y"].tolist() == (-large).tolist()
    finally:
        model.close()


@pytest.mark.parametrize("runtime", [None, "xla"])
def test_examples_tables_and_strings_run(tmp_path: Path, runtime: str | None) -> None:
    directory = write_version_1(tmp_path, graph_patterns.strings_tables_and_examples)
    model = loader.load(directory, hardware=TpuSystem(), runtime=runtime)

    try:
        examples = np.array([example(b"good good film"), example(b"bad")], object)
        outputs = model.run("serving_default", {"examples": examples})
    finally:
        model.close()
    assert outputs["score"].tolist() == [2, -1]
    assert outputs["text"].tolist() == [b"2", b"-1"]
    # XLA has no strings: TensorFlow runs the model, and the selection says why.
    assert ("XLA cannot" in model.choice.fallback) == (runtime == "xla")


@pytest.mark.parametrize("runtime", [None, "xla"])
def test_sparse_input_is_shown_and_refused_at_the_request(
    tmp_path: Path, runtime: str | None
) -> None:
    directory = write_version_1(tmp_path, graph_patterns.sparse_input)
    signature = metagraph.read_metagraphs(directory)[0].signatures["serving_default"]
    assert str(signature.inputs["x"]) == "sparse or composite float32 [?, 4]"
    model = loader.load(directory, hardware=TpuSystem(), runtime=runtime)
    try:
        with pytest.raises(UnsupportedModel, match="input 'x' is a sparse or composite tensor"):
            model.run("serving_default", {"x": X}, ["y"])
    finally:
        model.close()


def test_ragged_input_is_served_as_its_parts(tmp_path: Path) -> None:
    graph_patterns.write_ragged_input(tmp_path)
    model = loader.load(tmp_path, hardware=TpuSystem())
    try:
        assert model.run("serving_default", graph_patterns.RAGGED_PARTS)["y"].tolist() == [3, 3]
    finally:
        model.close()


def bfloat16_without_a_kernel(x: Any) -> dict[str, Any]:
    """Compute the inverse error function, which has no bfloat16 kernel on a CPU."""
    return {"y": tf.cast(tf.math.erfinv(tf.cast(x, tf.bfloat16)), tf.float32)}


@pytest.mark.numeric
def test_op_without_a_kernel_of_bfloat16_names_the_engine_that_has_one(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    directory = export(bfloat16_without_a_kernel, {"x": SPEC}, tmp_path, to_tpu=False)
    x = {"x": np.full([1, 4], 0.5, np.float32)}
    in_session = loader.load(directory, hardware=TpuSystem())
    with pytest.raises(ModelExecutionError, match="Erfinv.*serve with --engine=xla"):
        in_session.run("serving_default", x)
    in_session.close()
    through_xla = loader.load(directory, hardware=TpuSystem(), runtime="xla")
    y = through_xla.run("serving_default", x)["y"]
    through_xla.close()
    # The inverse error function of 0.5 is 0.4769. bfloat16 has 8 significant bits.
    np.testing.assert_allclose(y, 0.4769, rtol=2**-7)
