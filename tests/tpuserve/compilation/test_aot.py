from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.compilation import exports
from tpuserve.compilation import aot
from tpuserve.compilation.cache import CompileCache
from tpuserve.compilation.compile_report import CompileReport
from tpuserve.compilation.compiler import Compiler
from tpuserve.errors import (
    InvalidInput,
    InvalidSetting,
    MetagraphNotFound,
    SignatureNotFound,
)
from tpuserve.export import convert, on_tpu

V5E = "v5e:1x1"


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("linear")
    return exports.write_model(directory, exports.whole(exports.linear), [None, 16])


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(processes=1) as compiler:
        yield compiler


@pytest.fixture(scope="module")
def report(linear: Path, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    cache = CompileCache(tmp_path_factory.mktemp("cache"))
    return aot.compile(linear, topologies=[V5E, "v4:2x2x1"], batch_sizes=[8, 256], cache=cache)


@pytest.mark.slow
def test_each_topology_and_batch_size_is_compiled(report: CompileReport) -> None:
    assert [
        (compilation.batch_size, compilation.topology.name) for compilation in report.compilations
    ] == [
        (8, V5E),
        (8, "v4:2x2x1"),
        (256, V5E),
        (256, "v4:2x2x1"),
    ]
    assert report.passed


def test_the_operations_are_those_of_the_model(report: CompileReport) -> None:
    # A row takes 2 x 16 x 4 operations. The compiler leaves out a few: additions to zero.
    for compilation in report.compilations:
        assert compilation.stats is not None
        assert compilation.stats.flops == pytest.approx(128 * compilation.batch_size, rel=0.05)


def test_memory_holds_the_variables_and_time_is_estimated(report: CompileReport) -> None:
    for compilation in report.compilations:
        assert compilation.stats is not None
        assert compilation.stats.argument_bytes >= 4 * 16 * (compilation.batch_size + 4)
        assert 0 < compilation.stats.seconds < 1e-3
        assert compilation.estimated_rows_per_second_per_chip is not None


def test_the_devices_of_a_chip_are_counted(report: CompileReport) -> None:
    devices = {
        compilation.topology.name: compilation.topology.devices_per_chip
        for compilation in report.compilations
    }
    assert devices == {V5E: 1, "v4:2x2x1": 2}


def test_advice_names_batch_sizes_and_the_smallest_chip(report: CompileReport) -> None:
    (advice,) = report.advice
    assert advice.smallest_topology == V5E
    assert advice.buckets is not None
    assert advice.buckets.batch_sizes == (8, 256)


@pytest.mark.slow
def test_a_cached_result_is_reused(linear: Path, tmp_path: Path) -> None:
    events: list[tuple[int, int, str]] = []

    def compiled() -> CompileReport:
        events.clear()
        return aot.compile(
            linear,
            topologies=[V5E],
            batch_sizes=[1],
            processes=1,
            cache=CompileCache(tmp_path),
            progress=lambda *event: events.append(event),
        )

    first = compiled()
    assert (1, 1, "compiling") in events
    second = compiled()
    assert (1, 1, "compiling") not in events
    assert [
        compilation.is_cached for compilation in (*first.compilations, *second.compilations)
    ] == [False, True]
    assert first.compilations[0].stats == second.compilations[0].stats


def test_one_compiler_serves_many_calls(linear: Path, compiler: Compiler) -> None:
    for size in (2, 4):
        assert aot.compile(linear, topologies=[V5E], batch_sizes=[size], compiler=compiler).passed


def test_a_model_too_large_for_one_chip_fits_a_larger_chip(
    tmp_path: Path,
    compiler: Compiler,
) -> None:
    def model(x: Any) -> Any:
        # The table has 19.6 GB, more than the 16 GB of a v5e chip.
        table = exports.variable("table", [70_000, 70_000])
        return exports.whole(lambda batch: batch @ table)(x)

    directory = exports.write_model(
        tmp_path, model, [None, 70_000], saved=lambda: [exports.variable("small", [])]
    )
    compile_report = aot.compile(
        directory, compiler=compiler, topologies=[V5E, "v5p:2x2x1"], batch_sizes=[1]
    )
    small, large = compile_report.compilations
    assert small.error is not None
    assert "HBM" in small.error
    assert large.error is None
    assert large.hbm_bytes == pytest.approx(19.6e9, rel=0.01)
    assert compile_report.advice[0].smallest_topology == "v5p:2x2x1"
    assert not compile_report.passed


def test_an_op_without_a_tpu_kernel_is_an_error_for_every_topology(
    tmp_path: Path, compiler: Compiler
) -> None:
    def computation(x: Any) -> Any:
        return tf.strings.to_number(tf.strings.as_string(x, name="spelled"))

    directory = exports.write_model(tmp_path, exports.whole(computation), [None, 16])
    compile_report = aot.compile(
        directory, compiler=compiler, topologies=[V5E, "v6e:1x1"], batch_sizes=[1]
    )
    for compilation in compile_report.compilations:
        assert compilation.error is not None
        assert "AsString" in compilation.error
        assert "spelled" in compilation.error
    assert compile_report.advice[0].buckets is None


def test_a_loop_and_a_branch_that_read_variables_compile(
    tmp_path: Path, compiler: Compiler
) -> None:
    def computation(x: Any) -> Any:
        w, v = exports.variable("w", [16, 16]), exports.variable("v", [16])
        y = tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y @ w), [tf.constant(0), x])[1]
        return tf.cond(tf.reduce_sum(y) > 0, lambda: y + v, lambda: y)

    directory = exports.write_model(tmp_path, exports.whole(computation), [None, 16])
    # Compile twice: the functions that the first compilation registered with TensorFlow's eager
    # runtime are gone by the second.
    for _ in range(2):
        (compilation,) = aot.compile(
            directory, compiler=compiler, topologies=[V5E], batch_sizes=[2]
        ).compilations
        assert compilation.error is None


def test_a_batch_size_above_the_allowed_ones_is_an_error(
    tmp_path: Path,
    compiler: Compiler,
) -> None:
    def model(x: Any) -> Any:
        batched = tf.nondifferentiable_batch_function(1, 4, 1000, [2, 4])
        return batched(exports.whole(lambda batch: batch * 2.0))(x)

    directory = exports.write_model(tmp_path, model, [None, 16])
    compile_report = aot.compile(directory, compiler=compiler, topologies=[V5E])
    assert [compilation.batch_size for compilation in compile_report.compilations] == [2, 4]
    (above,) = aot.compile(
        directory, compiler=compiler, topologies=[V5E], batch_sizes=[5]
    ).compilations
    assert above.error is not None
    assert "a batch of 5 rows does not fit" in above.error


def test_a_node_with_a_colocation_constraint_is_compiled(
    tmp_path: Path, compiler: Compiler
) -> None:
    def computation(x: Any) -> Any:
        table = exports.variable("table", [5, 3])
        return tf.nn.embedding_lookup(table, tf.cast(x[:, 0], tf.int32))

    directory = exports.write_model(tmp_path, exports.whole(computation), [None, 16])
    assert aot.compile(directory, compiler=compiler, topologies=[V5E], batch_sizes=[2]).passed


def test_rows_that_the_model_pads_are_noted(tmp_path: Path, compiler: Compiler) -> None:
    def model(x: Any) -> Any:
        batched = tf.nondifferentiable_batch_function(1, 4, 1000, [4])
        return batched(exports.whole(lambda batch: batch * 2.0))(x)

    directory = exports.write_model(tmp_path, model, [None, 16])
    compile_report = aot.compile(directory, compiler=compiler, topologies=[V5E], batch_sizes=[1])
    assert compile_report.notes == ("signature 'serving_default': the model pads 1 rows to 4",)


def test_a_fixed_batch_is_compiled_as_it_is(tmp_path: Path, compiler: Compiler) -> None:
    directory = exports.write_model(tmp_path, exports.whole(exports.linear), [3, 16])
    (compilation,) = aot.compile(directory, compiler=compiler, topologies=[V5E]).compilations
    assert (compilation.batch_size, compilation.error) == (3, None)
    with pytest.raises(InvalidInput, match="accepts batches of 3 rows"):
        aot.compile(directory, compiler=compiler, topologies=[V5E], batch_sizes=[4])


def test_an_unknown_dimension_gets_the_assumed_size_and_a_note(
    tmp_path: Path, compiler: Compiler
) -> None:
    directory = exports.write_model(
        tmp_path, exports.whole(lambda x: tf.reduce_sum(x, 1)), [None, None]
    )
    compile_report = aot.compile(
        directory, compiler=compiler, topologies=[V5E], batch_sizes=[2], unknown_dimension=24
    )
    assert compile_report.passed
    assert compile_report.notes == (
        "signature 'serving_default': input 'x' is float32 [?, ?], and was compiled as [2, 24]",
    )


class FixedInputs(tf.Module):
    """Takes an input of fixed size beside rows."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.eye(4))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 4], tf.float32, "x"),
            tf.TensorSpec([4], tf.float32, "scale"),
        ]
    )
    def call(self, x: Any, scale: Any) -> Any:
        return {"y": tf.matmul(x * scale, self.w)}


def test_an_input_of_fixed_size_keeps_its_size(tmp_path: Path, compiler: Compiler) -> None:
    module = FixedInputs()
    tf.saved_model.save(module, str(tmp_path / "fixed"), {"serving_default": module.call})
    convert(tmp_path / "fixed", tmp_path / "converted")
    report = aot.compile(
        tmp_path / "converted", compiler=compiler, topologies=[V5E], batch_sizes=[1, 8]
    )
    assert [(result.batch_size, result.error) for result in report.compilations] == [
        (1, None),
        (8, None),
    ]
    # The rows take 2 x 4 x 4 operations for the product, and 4 for the scale.
    for result in report.compilations:
        assert result.stats is not None
        assert result.stats.flops <= 36 * result.batch_size


def longest(x: Any) -> Any:
    """Sum the products of rows with ones, of which the host makes as many as the largest value."""
    ones = tf.ones([tf.cast(tf.reduce_max(x), tf.int32), 4])
    sums = on_tpu(lambda inputs: [tf.reduce_sum(inputs[0] @ tf.transpose(inputs[1]), 1)], [x, ones])
    return sums[0]


def test_a_size_that_only_a_run_tells_is_that_of_a_run(tmp_path: Path, compiler: Compiler) -> None:
    directory = exports.write_model(tmp_path / "model", longest, [None, 4])
    np.savez(tmp_path / "x.npz", x=np.full([3, 4], 5, np.float32))
    options: dict[str, Any] = {"compiler": compiler, "topologies": [V5E], "batch_sizes": [2, 8]}
    report = aot.compile(directory, inputs=tmp_path / "x.npz", **options)
    assert report.passed
    assert [note.partition(" is ")[2] for note in report.notes] == [
        f"float32 [?, 4] at batch size {size}, and was compiled as [5, 4], as in a run on the "
        f"inputs of --inputs"
        for size in (2, 8)
    ]


def test_a_size_that_no_run_tells_is_an_error(tmp_path: Path, compiler: Compiler) -> None:
    def model(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_greater(tf.reduce_max(x), 4.0)]):
            return longest(tf.identity(x))

    directory = exports.write_model(tmp_path / "model", model, [None, 4])
    (result,) = aot.compile(
        directory, compiler=compiler, topologies=[V5E], batch_sizes=[2]
    ).compilations
    assert result.stats is None
    assert result.error is not None
    assert result.error.startswith(
        "sizes of what the host passes to the TPU are known only in a run"
    )
    assert result.error.endswith("Give inputs, with --inputs.")


def test_a_dimension_of_size_0_is_no_unknown_dimension(tmp_path: Path, compiler: Compiler) -> None:
    directory = exports.write_model(
        tmp_path, exports.whole(lambda x: tf.reduce_sum(x, 1)), [None, None, 0]
    )
    (note,) = aot.compile(
        directory, compiler=compiler, topologies=[V5E], batch_sizes=[2], unknown_dimension=24
    ).notes
    assert note.endswith("float32 [?, ?, 0], and was compiled as [2, 24, 0]")


def on_the_host(x: Any) -> Any:
    return x * 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "error", "says"),
    [
        (on_the_host, {}, InvalidInput, "runs nothing on the TPU"),
        (on_the_host, {"topologies": ["v9:1x1"]}, InvalidInput, "does not support topology"),
        (
            on_the_host,
            {"topologies": ["nonsense"]},
            InvalidInput,
            "libtpu does not support topology",
        ),
        (
            on_the_host,
            {"topologies": ["v5e:0x0"]},
            InvalidInput,
            "libtpu does not support topology",
        ),
        (on_the_host, {"signature_names": ["a"]}, SignatureNotFound, "'a'.*found serving_default"),
        (on_the_host, {"batch_sizes": [0]}, InvalidSetting, "A size of batch_sizes is 0"),
        (on_the_host, {"unknown_dimension": 0}, InvalidSetting, "unknown_dimension is 0"),
        (on_the_host, {"load": {8: 0.0}}, InvalidSetting, "weight of 8 in load is 0.0"),
    ],
)
def test_what_cannot_be_compiled_is_refused_in_one_line(
    tmp_path: Path,
    compiler: Compiler,
    model: Callable[[Any], Any],
    options: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    directory = exports.write_model(tmp_path, model, [None, 16])
    with pytest.raises(error, match=says) as raised:
        aot.compile(directory, compiler=compiler, **{"topologies": [V5E], **options})
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_model_without_a_tpu_metagraph_is_refused(tmp_path: Path, compiler: Compiler) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(MetagraphNotFound, match=r"no metagraph tagged \{serve, tpu\}"):
        aot.compile(tmp_path / "1", compiler=compiler, topologies=[V5E])
