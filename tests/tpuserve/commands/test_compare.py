"""`tpuserve compare` compares real servers over REST, gRPC and the Open Inference Protocol."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

import tpuserve
from tests.processes import ServeProcess
from tests.tpuserve.saved_models import tf_records
from tpuserve import cli
from tpuserve.local_server.server import LocalServer

pytestmark = pytest.mark.slow

FLOATS = tf.TensorSpec([None], tf.float32, name="x")
SLOPES = {"half": 0.5, "digit": 0.5000001, "other": 0.6}


def _line(slope: float) -> Callable[[Any], Any]:
    return lambda x: {"y": slope * x + 2}


def _refuse(text: str) -> Callable[[Any], Any]:
    def refuse(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x < 3), [text])]):
            return {"y": 0.5 * x + 2}

    return refuse


def _slow(x: Any) -> Any:
    # Ten thousand million operations, which no pass over the graph can leave out.
    matrix = tf.eye(256) * x[0]
    for _ in tf.range(300):
        matrix = matrix @ tf.eye(256)
    return {"y": 0.5 * x + 2 + 0 * matrix[0, 0]}


def _examples(double: float) -> Any:
    def parse(inputs: Any) -> Any:
        return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]

    def sizes(inputs: Any) -> Any:
        scores = tf.stack([parse(inputs), 1 - parse(inputs)], axis=1)
        return {"classes": tf.tile([["small", "large"]], [tf.size(inputs), 1]), "scores": scores}

    strings = tf.TensorSpec([None], tf.string, name="inputs")
    return {
        "serving_default": tf.function(sizes, input_signature=[strings]),
        "double": tf.function(lambda inputs: {"outputs": double * parse(inputs)}, [strings]),
    }


MODELS: dict[str, Any] = {
    **{name: _line(slope) for name, slope in SLOPES.items()},
    "shape": lambda x: {"y": tf.reshape(0.5 * x + 2, [-1, 1])},
    "refuses": _refuse("too large"),
    "refuses_too": _refuse("over 3"),
    "slow": _slow,
    "renamed": lambda x: {"z": 0.5 * x + 2},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Serve y = x / 2 + 2, and models that differ from it; those of sizes take Examples."""
    base = tmp_path_factory.mktemp("models")
    for name, function in MODELS.items():
        signature = tf.function(function, input_signature=[FLOATS])
        tf.saved_model.save(tf.Module(), str(base / name / "1"), signatures=signature)
    for name, double in {"sizes": 2.0, "sizes_too": 3.0}.items():
        tf.saved_model.save(tf.Module(), str(base / name / "1"), signatures=_examples(double))
    names = [*MODELS, "sizes", "sizes_too"]
    with tpuserve.serve({name: base / name for name in names}, enable_batching=False) as started:
        yield started


def predict_log(x: list[float], model: str = "half") -> bytes:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = model
    request.model_spec.version.value = 7  # The version of another server.
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array(x, np.float32)))
    return log.SerializeToString()


def example(x: float) -> Any:
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[x]))
    return tf.train.Example(features=tf.train.Features(feature={"x": feature}))


def examples_log(method: str, signature: str = "") -> bytes:
    log = prediction_log_pb2.PredictionLog()
    request = getattr(log, method).request
    request.input.example_list.examples.extend([example(0.25), example(0.75)])
    specs = [request.tasks.add() for _ in range(2)] if method == "multi_inference_log" else []
    for task, name in zip(specs, ("classify", "regress"), strict=False):
        task.method_name = f"tensorflow/serving/{name}"
        task.model_spec.signature_name = "double" if name == "regress" else ""
    for spec in [task.model_spec for task in specs] or [request.model_spec]:
        spec.name = "sizes"
        spec.signature_name = spec.signature_name or signature
    return log.SerializeToString()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A request log of five requests to the model "half": x = 0 to 4."""
    path = tmp_path / "logs" / "half.tfrecord"
    path.parent.mkdir()
    path.write_bytes(tf_records(*(predict_log([float(x)]) for x in range(5))))
    return path


def run_compare(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["compare", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def report_of(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int
) -> dict[str, Any]:
    capsys.readouterr()
    assert run_compare(*arguments, "--json") == status, capsys.readouterr().err
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert run_compare(*arguments) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert text.startswith("Error: ")
    return text


def two(server: LocalServer, candidate: str, log: Path) -> tuple[str | Path, ...]:
    names = ("--model", "half", "--candidate-model", candidate)
    return (server.rest_url, *names, "--request-log", log)


@pytest.mark.parametrize(
    "candidate",
    [("rest", "v1"), ("rest", "v2"), ("grpc", "v1"), ("grpc", "v2")],
    ids=lambda pair: "-".join(pair),
)
def test_a_model_whose_last_digit_differs_is_the_same_over_all_protocols(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str], candidate: tuple[str, str]
) -> None:
    protocol, api = candidate
    url = server.rest_url if protocol == "rest" else server.grpc_url
    arguments = (server.rest_url, url, "--model", "half", "--candidate-model", "digit")
    options = ("--candidate-api", api, "--request-log", log.parent)
    report = report_of(capsys, *arguments, *options, status=0)
    assert (report["requests"], report["differing"], report["same"]) == (5, 0, True)
    (signature,) = report["signatures"]
    assert 0 < signature["outputs"]["y"]["largest_absolute"] < 1e-5
    strict = ("--atol", "float32:0", "--rtol", "0")
    assert report_of(capsys, *arguments, *options, *strict, status=1)["differing"] > 0


def test_the_worst_differences_come_first_with_their_requests(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(capsys, *two(server, "other", log), "--concurrency", "4", status=1)
    assert [each["request"] for each in report["worst"]] == [4, 3, 2, 1]
    assert report["worst"][0]["where"] == "record 4 of half.tfrecord"
    assert report["worst"][0]["largest_absolute"] == pytest.approx(0.4)
    assert report["worst"][0]["difference"] == "y: 1 of 1 values differ, by 4.0e-01"
    assert run_compare(*two(server, "other", log)) == 1
    text = capsys.readouterr().out
    assert "serving_default: 4 of 5 requests differ" in text
    assert "different: 4 of 5 requests" in text


def test_another_shape_is_a_difference(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(capsys, *two(server, "shape", log), status=1)
    expected = "y: shape [1] in the baseline, [1, 1] in the candidate"
    assert {each["difference"] for each in report["worst"]} == {expected}


def test_an_error_of_one_side_is_a_difference(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(capsys, *two(server, "refuses", log), status=1)
    assert [each["request"] for each in report["worst"]] == [3, 4]
    text = report["worst"][0]["difference"]
    assert text.startswith("answered (baseline), INVALID_ARGUMENT: ")
    assert "too large" in text
    assert report["signatures"][0]["errors"] == {"baseline": 0, "candidate": 2}


def test_errors_with_other_texts_differ_unless_the_protocols_do(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("--model", "half", "--baseline-model", "refuses", "--candidate-model", "refuses_too")
    options = (*models, "--request-log", log)
    assert report_of(capsys, server.grpc_url, *options, status=1)["differing"] == 2
    both = (server.rest_url, server.grpc_url)
    assert report_of(capsys, *both, *options, status=0)["differing"] == 0


def test_a_slower_candidate_is_the_same_and_has_larger_latencies(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(capsys, *two(server, "slow", log), status=0)
    latencies = report["signatures"][0]["latency_ms"]
    assert latencies["candidate"]["p50"] > latencies["baseline"]["p50"]


def test_each_record_is_sent_by_its_method(
    server: LocalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sizes.tfrecord"
    path.write_bytes(
        tf_records(
            examples_log("classify_log"),
            examples_log("regress_log", "double"),
            examples_log("multi_inference_log"),
        )
    )
    names = ("--model", "sizes", "--candidate-model", "sizes_too", "--request-log", path)
    report = report_of(capsys, server.grpc_url, *names, status=1)
    assert [(each["method"], each["differing"]) for each in report["signatures"]] == [
        ("classify", 0),
        ("regress", 1),
        ("multi_inference", 1),
    ]
    # 2 * 0.75 and 3 * 0.75.
    assert [each["largest_absolute"] for each in report["worst"]] == [0.75, 0.75]
    # REST has no MultiInference; its answers are those of gRPC.
    same = ("--model", "sizes", "--request-log", path)
    report = report_of(capsys, server.rest_url, server.grpc_url, *same, status=0)
    assert report["left_out"] == {"multi_inference, which the API of a side does not have": 1}
    assert [each["method"] for each in report["signatures"]] == ["classify", "regress"]
    # The Open Inference Protocol has only Predict.
    text = error_of(capsys, server.rest_url, *same, "--candidate-api", "v2")
    assert "found 1 of classify, which the API of a side does not have; 1 of regress, " in text


def test_what_is_left_out_is_printed(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(log.read_bytes() + tf_records(examples_log("classify_log")))
    assert run_compare(*two(server, "digit", log)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"baseline: half at {server.rest_url}"
    assert "left out: 1 of model sizes" in lines
    assert lines[-1] == "same: 5 requests"


VERSIONS = """
model_config_list {{ config {{
  name: "half" base_path: "{base}" model_platform: "tensorflow"
  model_version_policy {{ all {{}} }}
  version_labels {{ key: "stable" value: 1 }}
  version_labels {{ key: "canary" value: 2 }}
}} }}
"""


def test_two_versions_or_labels_of_a_server_are_compared(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version, slope in enumerate((0.5, 0.6), 1):
        signature = tf.function(_line(slope), input_signature=[FLOATS])
        tf.saved_model.save(tf.Module(), str(tmp_path / f"half/{version}"), signatures=signature)
    config = tmp_path / "models.conf"
    config.write_text(VERSIONS.format(base=tmp_path / "half"))
    labels = "--allow_version_labels_for_unavailable_models"
    server = ServeProcess(tmp_path / "half", flags=[f"--model_config_file={config}", labels])
    try:
        half = (f"http://{server.rest}", "--model", "half", "--request-log", log)
        for names in (("version", "1", "2"), ("label", "stable", "canary")):
            option, baseline, candidate = names
            sides = (f"--baseline-{option}", baseline, f"--candidate-{option}", candidate)
            report = report_of(capsys, *half, *sides, status=1)
            assert report["differing"] == 4
            assert report["candidate"] == f"half {option} {candidate} at http://{server.rest}"
    finally:
        server.kill()


def test_an_interrupted_run_continues(
    server: LocalServer, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = tmp_path / "outputs"
    arguments = (*two(server, "other", log), "--outputs", outputs)
    whole = report_of(capsys, *arguments, status=1)
    results, differing = outputs / "results.jsonl", outputs / "differing.tfrecord"
    records = differing.read_bytes()
    # The end of a run that was killed while it wrote the result of the third request.
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    continued = report_of(capsys, *arguments, "--rate", "1000", status=1)
    assert continued["worst"] == whole["worst"]
    assert (
        differing.read_bytes()
        == records
        == tf_records(*map(predict_log, ([1.0], [2.0], [3.0], [4.0])))
    )
    # The requests that differ are a request log.
    again = (*two(server, "other", differing),)
    assert report_of(capsys, *again, status=1)["differing"] == 4
    assert json.loads((outputs / "report.json").read_text()) == continued
    # All requests are compared: nothing is sent, and the log may have grown.
    assert run_compare(*arguments) == 1
    assert "4 of 5 requests, 5 of them before" in capsys.readouterr().out
    log.write_bytes(log.read_bytes() + tf_records(predict_log([10.0])))
    assert report_of(capsys, *arguments, status=1)["requests"] == 6
    assert "which differs in: atol" in error_of(capsys, *arguments, "--atol", "1")


def test_ctrl_c_keeps_the_results_so_far(server: LocalServer, log: Path, tmp_path: Path) -> None:
    log.write_bytes(tf_records(*(predict_log([float(x)]) for x in range(100))))
    results = tmp_path / "outputs" / "results.jsonl"
    arguments = (*two(server, "digit", log), "--outputs", results.parent)
    command = [sys.executable, "-m", "tpuserve", "compare", *map(str, arguments), "--rate", "10"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not results.exists() or results.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1].strip() == "Error: interrupted"
    assert process.returncode == 130
    assert results.read_bytes().count(b"\n") < 100
    assert run_compare(*arguments) == 0
    numbers = [json.loads(line)["number"] for line in results.read_text().splitlines()[1:]]
    assert numbers == list(range(100))


def test_a_server_that_is_down_is_one_sentence(
    server: LocalServer, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{bound.getsockname()[1]}"
        options = ("--model", "half", "--request-log", log)
        text = error_of(capsys, server.rest_url, down, *options)
    assert f"the candidate: no server answers at {down}" in text


def test_results_before_the_end_of_a_server_are_kept(
    server: LocalServer, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "models"
    signature = tf.function(_line(0.5), input_signature=[FLOATS])
    tf.saved_model.save(tf.Module(), str(base / "1"), signatures=signature)
    outputs = tmp_path / "outputs"
    with tpuserve.serve({"half": base}) as candidate:
        arguments = (server.rest_url, candidate.rest_url, "--model", "half", "--request-log", log)
        assert run_compare(*arguments, "--outputs", outputs) == 0
    log.write_bytes(log.read_bytes() + tf_records(predict_log([10.0])))
    capsys.readouterr()
    assert run_compare(*arguments, "--outputs", outputs) == 2
    captured = capsys.readouterr()
    assert "same: 5 requests so far, 5 of them before" in captured.out
    assert "5 of 6 requests are compared: the same command continues." in captured.err


def test_signatures_that_differ_are_named(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = error_of(capsys, *two(server, "renamed", log))
    assert (
        "the signatures differ: output y of serving_default is float32 in the baseline and missing "
        "in the candidate; output z of serving_default is missing in the baseline and float32"
        in text
    )


def test_a_model_that_a_side_does_not_serve_is_named(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"the candidate, no at {server.rest_url}: " in error_of(capsys, *two(server, "no", log))


def test_records_before_a_damaged_tail_are_compared(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(log.read_bytes()[:-3])
    report = report_of(capsys, *two(server, "digit", log), status=0)
    assert report["requests"] == 4
    expected = f"{log} ends at record 4, which is damaged: the file ends 3 bytes too early"
    assert report["notes"] == [expected]


def test_a_log_without_requests_to_the_model_is_an_error(
    server: LocalServer, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = error_of(
        capsys, server.rest_url, server.grpc_url, "--model", "sizes", "--request-log", log
    )
    assert "there is no request to send to model 'sizes'; found 5 of model half. Give" in text
    (tmp_path / "none").mkdir()
    directory = ("--model", "half", "--request-log", tmp_path / "none")
    assert "has no *.tfrecord file" in error_of(
        capsys, server.rest_url, server.grpc_url, *directory
    )


def test_a_log_in_json_or_in_a_bucket_is_told_with_what_to_do(
    server: LocalServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = log.rename(log.with_suffix(".jsonl"))
    for path in (lines, lines.parent):
        text = error_of(capsys, *two(server, "digit", path))
        assert f"{path} is a request log in JSON, whose rows are no longer requests" in text
    url = "s3://models/logs/half"
    assert f"{url} is a URI, which" in error_of(
        capsys, server.rest_url, server.grpc_url, "--model", "half", "--request-log", url
    )


def test_requests_that_both_sides_refuse_compare_nothing(
    server: LocalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "refused.tfrecord"
    path.write_bytes(tf_records(predict_log([5.0])))
    both = ("--model", "half", "--baseline-model", "refuses", "--candidate-model", "refuses")
    text = error_of(capsys, server.rest_url, server.grpc_url, *both, "--request-log", path)
    assert "both sides refuse all 1 requests" in text


def test_inputs_are_random_or_come_from_a_file(
    server: LocalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (server.rest_url, server.grpc_url, "--model", "half")
    assert report_of(capsys, *arguments, "--batch-size", "3", status=0)["requests"] == 16
    (tmp_path / "inputs.jsonl").write_text('{"x": [1, 2]}\n{"x": [3]}\n')
    options = ("--inputs", tmp_path / "inputs.jsonl", "--baseline-version", "1")
    assert report_of(capsys, *arguments, *options, status=0)["requests"] == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "both sides are half at http://localhost:1"),
        (("--atol", "x"), "'x' is not a valid [DTYPE:]NUMBER"),
        (
            ("--inputs", __file__, "--request-log", __file__, "grpc://localhost:1"),
            "Give one of them",
        ),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert text in error_of(capsys, "http://localhost:1", "--model", "half", *arguments)
