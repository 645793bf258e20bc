"""`verify` passes equal metagraphs, and fails for different ones with the right figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.exports import model, models
from tests.tpuserve.verification import exports
from tpuserve.errors import (
    InvalidSetting,
    InvalidType,
    MetagraphNotFound,
    SignatureNotFound,
)
from tpuserve.export import WarmUp, convert, inference_on_tpu
from tpuserve.verification import Report, verify


def double(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": 2.0 * inputs["x"]}


def off_by_a_thousandth(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": 2.0 * inputs["x"] + 1e-3}


def sizes(report: Report, signature: int = 0) -> list[tuple[int | None, str]]:
    return [(run.batch_size, run.source) for run in report.signatures[signature].runs]


@pytest.fixture(scope="module")
def doubled_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exports.write_export(tmp_path_factory.mktemp("doubled"), double)


def test_equal_metagraphs_pass(doubled_model: Path) -> None:
    report = verify(doubled_model, runs=1)
    assert report.passed
    assert report.largest_absolute == 0.0
    assert sizes(report) == [(1, "generated"), (8, "generated")]
    assert all(
        timing is not None and timing.first > 0 and timing.median is not None
        for run in report.signatures[0].runs
        for timing in (run.baseline, run.candidate)
    )


@pytest.mark.numeric
def test_metagraphs_that_differ_fail_with_the_difference(tmp_path: Path) -> None:
    directory = exports.write_export(tmp_path / "export", double, off_by_a_thousandth)
    np.savez(tmp_path / "x.npz", x=np.array([[1, 4]], np.float32))
    report = verify(directory, inputs=tmp_path / "x.npz", runs=0)
    (output,) = report.signatures[0].runs[0].outputs
    assert not report.passed
    # The outputs are 2 in the baseline and 2.001 in the candidate, and 8 and 8.001.
    assert output.largest_absolute == pytest.approx(1e-3, rel=1e-3)
    assert output.largest_relative == pytest.approx(5e-4, rel=1e-3)
    assert output.num_out_of_tolerance == 2
    assert (output.num_mismatched, output.compared) == (0, 1)
    assert verify(directory, inputs=tmp_path / "x.npz", runs=0, atol=2e-3).passed


@pytest.mark.slow
def test_a_real_export_passes(tmp_path: Path) -> None:
    residual = models.RESIDUAL
    model.train(residual, tmp_path / "model")
    estimator = model.estimator(residual.model_fn, tmp_path / "model")
    exported = estimator.export_saved_model(str(tmp_path / "export"), residual.raw_receiver_fn)
    report = verify(exported.decode(), runs=0)
    assert report.passed
    assert report.largest_absolute is not None
    assert report.largest_absolute < 1e-5
    assert [hazard.kind for hazard in report.hazards] == ["recompilation", "int64"]


def test_a_failing_signature_does_not_stop_the_others(tmp_path: Path) -> None:
    def spelled(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        text = tf.strings.as_string(inputs["x"], name="spelled")
        return {"y": tf.strings.to_number(text, name="read")}

    directory = exports.write_export(tmp_path, double, signatures={"spelled": spelled})
    report = verify(directory, batch_sizes=[1], runs=0)
    assert [(signature.name, signature.passed) for signature in report.signatures] == [
        ("serving_default", True),
        ("spelled", False),
    ]
    failure = report.signatures[1].runs[0].failure
    assert failure is not None
    assert failure.endswith("XLA cannot compile AsString (spelled)")
    errors = {hazard.node: hazard for hazard in report.hazards if hazard.severity == "error"}
    # XLA stops at the first op that it cannot compile; the report has both.
    assert {hazard.op for hazard in errors.values()} == {"AsString", "StringToNumber"}
    line = errors["spelled"].line
    assert line is not None
    assert Path(__file__).name in line


class Counter(tf.Module):
    """Multiplies by the number of runs, and fails for 4 rows or more, after it has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.n = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def call(self, x: Any) -> Any:
        n = self.n.assign_add(1.0)
        rows = tf.shape(x)[0] + 0 * tf.cast(n, tf.int32)
        return {"y": x * n + tf.gather(tf.zeros([4]), rows)}


@pytest.mark.slow
def test_each_inputs_of_a_model_that_writes_start_from_the_saved_state(tmp_path: Path) -> None:
    module = Counter()
    tf.saved_model.save(module, str(tmp_path / "counter"), {"serving_default": module.call})
    convert(tmp_path / "counter", tmp_path / "converted")
    report = verify(tmp_path / "converted", batch_sizes=[8, 1], runs=1)
    # The run of the baseline with 8 rows fails after it has counted; the candidate's is left out.
    failing, passing = report.signatures[0].runs
    assert failing.failure is not None
    assert failing.failure.startswith("the baseline {serve} failed: ")
    assert passing.passed


def test_a_signature_that_writes_a_file_does_not_run_on_generated_inputs(tmp_path: Path) -> None:
    def writing(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "file"), "x")]):
            return {"y": tf.identity(inputs["x"])}

    directory = exports.write_export(tmp_path / "export", writing, on_host=True)
    (signature,) = verify(directory, runs=0).signatures
    assert signature.failure is not None
    assert signature.failure.startswith("it writes a file (WriteFile, node WriteFile)")
    assert not (tmp_path / "file").exists()
    np.savez(tmp_path / "x.npz", x=np.array([[1, 4]], np.float32))
    assert verify(directory, inputs=tmp_path / "x.npz", runs=0).passed
    assert (tmp_path / "file").exists()


def test_a_failure_of_the_baseline_is_reported(tmp_path: Path) -> None:
    def shaped(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"y": tf.reshape(inputs["x"], [4])}

    report = verify(exports.write_export(tmp_path, shaped), batch_sizes=[1], runs=0)
    failure = report.signatures[0].runs[0].failure
    assert failure is not None
    assert failure.startswith("the baseline {serve} failed: ")


def test_a_computation_that_cannot_be_lowered_is_reported(tmp_path: Path) -> None:
    directory = exports.write_export(
        tmp_path,
        lambda inputs: {"y": inputs["s"] + inputs["s"]},
        inputs={"s": tf.TensorSpec([None], tf.string)},
    )
    report = verify(directory, batch_sizes=[1], runs=0)
    failure = report.signatures[0].runs[0].failure
    assert failure is not None
    assert "which a TPU cannot hold" in failure


def test_given_inputs_are_repeated_or_cut_to_the_batch_sizes(
    doubled_model: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones([3, 2]))
    report = verify(doubled_model, inputs=tmp_path / "x.npz", batch_sizes=[2, 7], runs=0)
    assert sizes(report) == [(2, "file"), (7, "file")]
    assert [run.outputs[0].shape for run in report.signatures[0].runs] == [(2, 2), (7, 2)]
    assert report.notes == (f"{tmp_path}/x.npz: input 'x' was converted from float64 to float32",)


def test_a_file_may_have_inputs_of_signatures_that_do_not_run(tmp_path: Path) -> None:
    directory = exports.write_export(
        tmp_path / "export",
        double,
        lambda inputs: {"z": inputs["x"]},
        signatures={"doubled": double, "other": double},
    )
    arrays = {f"{name}/x": np.ones([3, 2]) for name in ("serving_default", "doubled", "other")}
    np.savez(tmp_path / "x.npz", **arrays)  # type: ignore[arg-type]
    names = ["serving_default", "doubled"]
    report = verify(directory, inputs=tmp_path / "x.npz", signatures=names, runs=0)
    assert [(signature.name, signature.passed) for signature in report.signatures] == [
        ("doubled", True),
        ("serving_default", False),
    ]
    assert sizes(report) == [(3, "file")]


def test_warm_up_records_are_used(tmp_path: Path) -> None:
    directory = exports.write_export(tmp_path, double, warm_up=WarmUp(batch_sizes=[2, 3]))
    assert sizes(verify(directory, runs=0)) == [(2, "warm-up record"), (3, "warm-up record")]


def test_batch_sizes_are_those_that_batch_functions_allow(tmp_path: Path) -> None:
    def batched(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        (y,) = inference_on_tpu(lambda x: 2.0 * x, [inputs["x"]], 1, 4, 100, [2, 4])
        return {"y": y}

    directory = exports.write_export(tmp_path, double, batched, on_host=True)
    report = verify(directory, runs=0)
    assert report.passed
    assert sizes(report) == [(2, "generated"), (4, "generated")]
    assert [hazard.severity for hazard in report.hazards] == ["note"]


def test_a_fixed_batch_is_run_as_it_is(tmp_path: Path) -> None:
    inputs = {"x": tf.TensorSpec([5, 2], tf.float32)}
    report = verify(exports.write_export(tmp_path, double, inputs=inputs), batch_sizes=[1], runs=0)
    assert report.passed
    assert sizes(report) == [(5, "generated")]


def test_a_parsing_receiver_gets_examples(tmp_path: Path) -> None:
    spec = {"x": tf.io.FixedLenFeature([2], tf.float32)}

    def parsed(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return double({"x": tf.io.parse_example(inputs["examples"], spec)["x"]})

    def parsed_before(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        x = tf.io.parse_example(inputs["examples"], spec)["x"]
        return {"y": inference_on_tpu(lambda x: 2.0 * x, [x], 1, 8, 100, None)[0]}

    inputs = {"examples": tf.TensorSpec([None], tf.string)}
    report = verify(
        exports.write_export(tmp_path, parsed, parsed_before, inputs, on_host=True), runs=0
    )
    assert report.passed
    assert [run.outputs[0].shape for run in report.signatures[0].runs] == [(1, 2), (8, 2)]


def test_signatures_that_are_not_the_same_fail(tmp_path: Path) -> None:
    directory = exports.write_export(tmp_path, double, lambda inputs: {"z": inputs["x"] + 1.0})
    report = verify(directory, runs=0)
    assert report.signatures[0].failure == "the candidate {serve, tpu} has no output 'y'"
    assert not report.passed


def test_nothing_to_compare_is_no_success() -> None:
    report = Report(Path("model"), atol=0, rtol=0, seed=0, signatures=())
    assert not report.passed


def test_progress_is_reported(doubled_model: Path) -> None:
    events: list[tuple[int, int, str]] = []
    verify(doubled_model, batch_sizes=[3], runs=0, progress=lambda *event: events.append(event))
    assert events == [
        (0, 2, "loading {serve}"),
        (0, 2, "serving_default, batch size 3"),
        (1, 2, "loading {serve, tpu}"),
        (1, 2, "serving_default, batch size 3"),
        (2, 2, "done"),
    ]


def test_an_unknown_signature_is_refused_with_the_known_names(doubled_model: Path) -> None:
    with pytest.raises(SignatureNotFound, match="no signature 'other' .* found serving_default"):
        verify(doubled_model, signatures=["other"])


def test_a_missing_metagraph_is_named(tmp_path: Path) -> None:
    module = tf.Module()
    module.f = tf.function(lambda x: x, input_signature=[tf.TensorSpec([None], tf.float32)])
    tf.saved_model.save(module, str(tmp_path), signatures=module.f)
    with pytest.raises(MetagraphNotFound, match=r"no metagraph tagged \{serve, tpu\}; found"):
        verify(tmp_path)


@pytest.mark.parametrize(
    "setting", [{"atol": -1.0}, {"rtol": float("nan")}, {"batch_sizes": [0]}, {"runs": -1}]
)
def test_an_impossible_setting_is_refused(doubled_model: Path, setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        verify(doubled_model, **setting)


def test_incompatible_shapes_of_a_signature_are_named(tmp_path: Path) -> None:
    directory = exports.write_export(tmp_path, double, lambda inputs: {"y": inputs["x"][:, :1]})
    (signature,) = verify(directory, runs=0).signatures
    assert signature.failure == (
        "output 'y' is float32 [?, 2] in the baseline, float32 [?, 1] in the candidate"
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_sizes": "12"}, InvalidType, "batch_sizes is '12'. Give a list"),
        ({"batch_sizes": 8}, InvalidType, "batch_sizes is 8. Give a list"),
        ({"batch_sizes": [1.5]}, InvalidType, "A size of batch_sizes is 1.5. Give a whole"),
        ({"atol": "x"}, InvalidType, "atol is 'x'. Give a number"),
        ({"rtol": float("nan")}, InvalidSetting, "rtol is nan. Give a number"),
        ({"signatures": "a"}, InvalidType, "signatures is 'a'. Give a list"),
        ({"signatures": [1]}, InvalidType, r"signatures is \[1\]. Give a list"),
        ({"runs": 1.5}, InvalidType, "runs is 1.5"),
        ({"inputs": 3}, InvalidType, "inputs is 3. Give a path"),
        ({"directory": None}, InvalidType, "directory is None. Give a path"),
    ],
)
def test_an_argument_of_another_type_is_refused(
    doubled_model: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        verify(**{"directory": doubled_model, **arguments})
