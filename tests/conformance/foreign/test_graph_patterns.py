"""Graphs with patterns of other exporters are inspected, verified, and run by every runtime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.devices import TpuSystem
from tpuserve.errors import ModelExecutionError, UnsupportedModel
from tpuserve.export import export
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph
from tpuserve.verification import verify

pytestmark = pytest.mark.slow

SYSTEMS = {
    "session": (TpuSystem(), None),
    "xla": (TpuSystem(), "xla"),
    "lowered": (TpuSystem(1, 1, is_emulated=True), None),
    "pjrt": (TpuSystem(1, 1, pjrt_platform="cpu"), None),
}
X = np.array([[1, 2, 3, 4], [-1, 0, 1, 2]], np.float32)
SPEC = tf.TensorSpec([None, 4], tf.float32, name="x")


def jit_compiled() -> Any:
    """Return a function 2 x + 1 with jit_compile=True."""
    return tf.function(lambda x: {"y": 2.0 * x + 1.0}, jit_compile=True)


def nested_calls() -> Any:
    """Return a function 8 x: three nested functions that double x."""

    @tf.function
    def double(x: Any) -> Any:
        return 2.0 * x

    @tf.function
    def quadruple(x: Any) -> Any:
        return double(double(x))

    return tf.function(lambda x: {"y": quadruple(double(x))})


def control_dependencies() -> Any:
    """Return a function x + 1 whose result has a control input from a check."""

    def add(x: Any) -> Any:
        check = tf.debugging.assert_less(x, 100.0)
        with tf.control_dependencies([check] if check is not None else []):
            return {"y": x + 1.0}

    return tf.function(add)


def bfloat16_convolution() -> Any:
    """Return a function that convolves x, an image of 2 x 2, in bfloat16 with a kernel of ones."""

    def convolve(x: Any) -> Any:
        image = tf.cast(tf.reshape(x, [-1, 2, 2, 1]), tf.bfloat16)
        kernel = tf.ones([2, 2, 1, 1], tf.bfloat16)
        return {"y": tf.cast(tf.nn.conv2d(image, kernel, 1, "VALID")[:, 0, 0], tf.float32)}

    return tf.function(convolve)


PATTERNS: dict[str, tuple[Callable[[], Any], Any]] = {
    "jit_compile": (jit_compiled, 2 * X + 1),
    "nested calls": (nested_calls, 8 * X),
    "control dependencies": (control_dependencies, X + 1),
    "bfloat16 convolution": (bfloat16_convolution, X.sum(axis=1, keepdims=True)),
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
    model = loader.load(directory, hardware=hardware, runtime=runtime)
    try:
        assert model.run("serving_default", {"x": X})["y"].tolist() == expected.tolist()
    finally:
        model.close()


def test_inspect_shows_a_computation_and_verify_passes(pattern: tuple[Path, Any]) -> None:
    directory, _ = pattern
    assert [each.has_tpu_computation for each in metagraph.read_metagraphs(directory)] == [
        False,
        True,
    ]
    report = verify(directory, batch_sizes=[2], runs=0)
    assert report.passed, report.signatures
    assert report.largest_absolute == 0


def write_version_1(base: Path, build: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> Path:
    """Write a SavedModel of TensorFlow 1 with {serve} alone; return its directory."""
    with tf.Graph().as_default():
        inputs, outputs = build()
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tables_initializer())
            builder = tf.compat.v1.saved_model.Builder(str(base / "1"))
            signature = tf.compat.v1.saved_model.predict_signature_def(inputs, outputs)
            builder.add_meta_graph_and_variables(
                session,
                ["serve"],
                {"serving_default": signature},
                main_op=tf.compat.v1.tables_initializer(),
            )
            builder.save()
    return base / "1"


def switch_and_merge() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a loop that doubles x while its sum is below 100, and a branch.

    The branch negates the result if its sum is below 110. Both use Switch and Merge.
    """
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x")
    tf.compat.v1.disable_control_flow_v2()
    try:
        doubled = tf.compat.v1.while_loop(
            lambda value: tf.reduce_sum(value) < 100.0, lambda value: [2.0 * value], [x]
        )
        y = tf.compat.v1.cond(tf.reduce_sum(doubled) < 110.0, lambda: -doubled, lambda: doubled)
    finally:
        tf.compat.v1.enable_control_flow_v2()
    return {"x": x}, {"y": y}


def strings_tables_and_examples() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a graph that parses tf.Examples, splits their text, and adds scores of the words."""
    serialized = tf.compat.v1.placeholder(tf.string, [None], "examples")
    parsed = tf.io.parse_example(serialized, {"text": tf.io.FixedLenFeature([], tf.string)})
    words = tf.strings.split(parsed["text"]).to_tensor("")
    keys = tf.constant(["good", "bad"])
    values = tf.constant([1, -1], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)
    score = tf.reduce_sum(table.lookup(words), axis=1)
    return {"examples": serialized}, {"score": score, "text": tf.as_string(score)}


@pytest.mark.parametrize("runtime", [None, "xla"])
def test_control_flow_of_version_1_runs(tmp_path: Path, runtime: str | None) -> None:
    directory = write_version_1(tmp_path, switch_and_merge)
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
    directory = write_version_1(tmp_path, strings_tables_and_examples)
    model = loader.load(directory, hardware=TpuSystem(), runtime=runtime)

    def example(text: bytes) -> bytes:
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
        features = tf.train.Features(feature={"text": feature})
        return bytes(tf.train.Example(features=features).SerializeToString())

    try:
        examples = np.array([example(b"good good film"), example(b"bad")], object)
        outputs = model.run("serving_default", {"examples": examples})
    finally:
        model.close()
    assert outputs["score"].tolist() == [2, -1]
    assert outputs["text"].tolist() == [b"2", b"-1"]
    # XLA has no strings: TensorFlow runs the model, and the selection says why.
    assert ("XLA cannot" in model.choice.fallback) == (runtime == "xla")


def sparse_input() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a graph with a sparse input x, a dense output 2 x and the sparse output x."""
    x = tf.compat.v1.sparse_placeholder(tf.float32, [None, 4], "x")
    return {"x": x}, {"y": 2.0 * tf.sparse.to_dense(x), "z": x}


@pytest.mark.parametrize("runtime", [None, "xla"])
def test_sparse_input_is_shown_and_refused_at_the_request(
    tmp_path: Path, runtime: str | None
) -> None:
    directory = write_version_1(tmp_path, sparse_input)
    signature = metagraph.read_metagraphs(directory)[0].signatures["serving_default"]
    assert str(signature.inputs["x"]) == "sparse or composite float32 [?, 4]"
    model = loader.load(directory, hardware=TpuSystem(), runtime=runtime)
    try:
        with pytest.raises(UnsupportedModel, match="input 'x' is a sparse or composite tensor"):
            model.run("serving_default", {"x": X}, ["y"])
    finally:
        model.close()


def test_ragged_input_is_served_as_its_parts(tmp_path: Path) -> None:
    module = tf.Module()
    spec = tf.RaggedTensorSpec([None, None], tf.float32)
    module.sums = tf.function(lambda x: {"y": tf.reduce_sum(x, axis=1)}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), signatures=module.sums)
    model = loader.load(tmp_path, hardware=TpuSystem())
    try:
        # The rows [1, 2] and [3] are sent as their values and row splits.
        parts: dict[str, np.ndarray[Any, Any]] = {
            "x": np.array([1, 2, 3], np.float32),
            "x_1": np.array([0, 2, 3], np.int64),
        }
        assert model.run("serving_default", parts)["y"].tolist() == [3, 3]
    finally:
        model.close()


def bfloat16_without_a_kernel(x: Any) -> dict[str, Any]:
    """Compute the inverse error function, which has no bfloat16 kernel on a CPU."""
    return {"y": tf.cast(tf.math.erfinv(tf.cast(x, tf.bfloat16)), tf.float32)}


@pytest.mark.numeric
def test_op_without_a_kernel_of_bfloat16_names_the_engine_that_has_one(tmp_path: Path) -> None:
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
