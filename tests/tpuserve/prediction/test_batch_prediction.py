"""`predict`: every format of inputs gives the outputs of the model, in every format of outputs."""

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from tests.tpuserve.prediction import models
from tpuserve import tags
from tpuserve.errors import (
    Code,
    CodedError,
    InvalidInput,
    InvalidJson,
    InvalidSetting,
    InvalidTensor,
    NotFound,
    SignatureNotFound,
    TpuserveError,
    VersionNotFound,
)
from tpuserve.prediction.batch_prediction import PredictionReport, predict
from tpuserve.prediction.formats import InputFormat, OutputFormat
from tpuserve.prediction.output_directory import OutputDirectory, describe_run

FIRST = "predictions-00000-of-00001"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("model") / "1")


def run_predict(model: Path, tmp_path: Path, path: Path | str, **options: Any) -> PredictionReport:
    options = {"batch_size": 4, **options}
    return predict(model, [str(path)], tmp_path / "out", **options)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("signature", ["serving_default", "examples"])
def test_examples_become_prediction_logs(model: Path, tmp_path: Path, signature: str) -> None:
    x = models.values(10)
    records = [models.example(row) for row in x]
    path = models.write_records(tmp_path / "data.tfrecord", records)
    report = run_predict(model, tmp_path, path, signature_name=signature)
    assert (report.rows, report.files, report.skipped_files) == (10, 1, 0)
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    assert len(logs) == 10
    np.testing.assert_array_equal(models.outputs(logs, "y"), 2 * x)
    assert {log.request.model_spec.signature_name for log in logs} == {signature}
    assert list(logs[0].response.outputs["y"].tensor_shape.dim[0:1])[0].size == 1
    if signature == "examples":
        assert models.inputs(logs, "examples").tolist() == records
    else:
        np.testing.assert_array_equal(models.inputs(logs, "x"), x)


def test_records_of_a_signature_that_writes_run_one_at_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def add(self, x: Any) -> Any:
            return {"y": x + self.n.assign_add(1.0)}

    module = Counter()
    tf.saved_model.save(module, str(tmp_path / "model"), {"serving_default": module.add})
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x": 10}\n' * 4)
    report = run_predict(tmp_path / "model", tmp_path, path, output_format=OutputFormat.JSON_LINES)
    lines = (tmp_path / "out" / f"{FIRST}.jsonl").read_text().splitlines()
    assert [json.loads(line)["y"] for line in lines] == [11, 12, 13, 14]
    assert report.rows == 4
    assert "signature serving_default updates a variable (AssignAddVariableOp" in caplog.text


def test_compressed_files_are_decompressed(model: Path, tmp_path: Path) -> None:
    x = models.values(3)
    plain = models.write_records(tmp_path / "plain", [models.example(row) for row in x])
    path = tmp_path / "data.tfrecord.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    run_predict(model, tmp_path, path)
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    np.testing.assert_array_equal(models.outputs(logs, "y"), 2 * x)


def test_requests_of_several_rows_get_their_rows_back(model: Path, tmp_path: Path) -> None:
    x = models.values(9)
    parts = [x[:2], x[2:3], x[3:9]]
    messages = [models.request(part) for part in parts]
    records = [message.SerializeToString() for message in messages]
    path = models.write_records(tmp_path / "data.tfrecord", records)
    report = run_predict(model, tmp_path, path, input_format=InputFormat.REQUESTS)
    assert report.rows == 9
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    assert [log.request for log in logs] == messages
    for log, part in zip(logs, parts, strict=True):
        np.testing.assert_array_equal(models.outputs([log], "y"), 2 * part)


def test_logged_requests_keep_their_signature_and_output_filter(
    model: Path, tmp_path: Path
) -> None:
    x = models.values(2)
    requests = [
        models.request(x, output_filter=["sum"]),
        models.request(x),
        models.request(x, "total"),
    ]
    path = models.write_records(tmp_path / "data", [models.log(request) for request in requests])
    run_predict(model, tmp_path, path, input_format=InputFormat.PREDICTION_LOGS)
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    assert [set(log.response.outputs) for log in logs] == [{"sum"}, {"sum", "y"}, {"total"}]
    assert logs[2].response.outputs["total"].tensor_shape.dim == []


@pytest.mark.parametrize("signature", ["", "examples"])
def test_logged_examples_run_as_their_method_runs_them(
    model: Path, tmp_path: Path, signature: str
) -> None:
    x = models.values(3)
    rows = [models.example(row) for row in x]
    records = [
        models.examples_log("classify", rows[:2], signature),
        models.examples_log("regress", rows[2:], signature),
    ]
    path = models.write_records(tmp_path / "log", records)
    report = run_predict(model, tmp_path, path, input_format=InputFormat.PREDICTION_LOGS)
    assert report.rows == 3
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    assert [len(tf.make_ndarray(log.response.outputs["y"])) for log in logs] == [2, 1]
    np.testing.assert_array_equal(models.outputs(logs, "y"), 2 * x)
    np.testing.assert_array_equal(models.outputs(logs, "sum"), (2 * x).sum(1))


@pytest.mark.slow
def test_a_logged_request_runs_in_the_version_that_it_names(model: Path, tmp_path: Path) -> None:
    for version in (1, 2):
        (tmp_path / "models").mkdir(exist_ok=True)
        shutil.copytree(model, tmp_path / "models" / str(version))
    halved = tf.function(lambda x: {"y": x / 2}, [tf.TensorSpec([None, 2], tf.float32, name="x")])
    tf.saved_model.save(tf.Module(), str(tmp_path / "models/7"), signatures=halved)
    x = models.values(4)
    requests = [models.request(x[row : row + 1]) for row in range(4)]
    for request, version in zip(requests, (7, 1, 2, 0), strict=True):
        if version:
            request.model_spec.version.value = version
    path = models.write_records(tmp_path / "log", map(models.log, requests))
    options: Any = {"input_format": InputFormat.PREDICTION_LOGS, "record_versions": True}
    run_predict(tmp_path / "models/2", tmp_path, path, **options)
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    np.testing.assert_array_equal(models.outputs(logs, "y"), x * [[0.5], [2], [2], [2]])
    assert [log.request.model_spec.version.value for log in logs] == [7, 1, 2, 0]
    shutil.rmtree(tmp_path / "models/7")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(VersionNotFound, match="names version 7, and .*models/7 does not exist"):
        run_predict(tmp_path / "models/2", tmp_path, path, **options)
    (tmp_path / "models/2").rename(tmp_path / "models/two")
    with pytest.raises(InvalidSetting, match="--record-versions needs a base path"):
        run_predict(tmp_path / "models/two", tmp_path, path, **options)


def test_json_lines_have_named_inputs_or_a_single_value(model: Path, tmp_path: Path) -> None:
    x = models.values(6)
    rows = [{"x": row.tolist()} for row in x[:5]] + [x[5].tolist()]
    path = models.write_lines(tmp_path / "data.jsonl", rows)
    run_predict(model, tmp_path, path, output_format=OutputFormat.JSON_LINES)
    lines = (tmp_path / "out" / f"{FIRST}.jsonl").read_text().splitlines()
    predictions = [json.loads(line) for line in lines]
    y = np.array([prediction["y"] for prediction in predictions], np.float32)
    np.testing.assert_array_equal(y, 2 * x)
    assert np.shape([prediction["sum"] for prediction in predictions]) == (6,)


def test_strings_are_text_or_base64(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "ä", "number": 1}, {"text": {"b64": "/w=="}, "number": 2}]
    path = models.write_lines(tmp_path / "data.jsonl", rows)
    options = {"signature_name": "name", "output_format": OutputFormat.JSON_LINES}
    run_predict(model, tmp_path, path, **options)
    lines = (tmp_path / "out" / f"{FIRST}.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["ä-1", {"b64": "/y0y"}]


def test_parquet_has_a_column_for_each_output(model: Path, tmp_path: Path) -> None:
    x = models.values(6)
    path = models.write_lines(tmp_path / "data.jsonl", x.tolist())
    run_predict(model, tmp_path, path, output_format=OutputFormat.PARQUET)
    table = pq.read_table(tmp_path / "out" / f"{FIRST}.parquet")
    assert table.column_names == ["sum", "y"]
    np.testing.assert_array_equal(np.array(table["y"].to_pylist(), np.float32), 2 * x)
    assert str(table.schema.field("sum").type) == "float"


def test_an_empty_file_gives_an_empty_file_with_columns(model: Path, tmp_path: Path) -> None:
    path = models.write_lines(tmp_path / "data.jsonl", [])
    run_predict(model, tmp_path, path, output_format=OutputFormat.PARQUET)
    table = pq.read_table(tmp_path / "out" / f"{FIRST}.parquet")
    assert (table.num_rows, table.column_names) == (0, ["sum", "y"])


@pytest.mark.parametrize("engine", ["session", "xla"])
def test_engines_give_the_same_rows_with_a_smaller_last_batch(
    model: Path, tmp_path: Path, engine: str
) -> None:
    x = models.values(6)
    path = models.write_lines(tmp_path / "data.jsonl", x.tolist())
    run_predict(model, tmp_path, path, runtime=engine, tags=tags.SERVE)
    logs = models.read_logs(tmp_path / "out" / f"{FIRST}.tfrecord")
    np.testing.assert_array_equal(models.outputs(logs, "y"), 2 * x)


def write_three_files(tmp_path: Path) -> Any:
    """Write a.tfrecord, b.tfrecord and c.tfrecord with 10 rows each; return the rows of all."""
    x = models.values(30)
    for index, name in enumerate("abc"):
        records = [models.example(row) for row in x[index * 10 : index * 10 + 10]]
        models.write_records(tmp_path / f"{name}.tfrecord", records)
    return x


def test_a_cut_file_is_an_error_and_the_run_continues_with_it(model: Path, tmp_path: Path) -> None:
    x = write_three_files(tmp_path)
    out, cut = tmp_path / "out", tmp_path / "b.tfrecord"
    whole = cut.read_bytes()
    cut.write_bytes(whole[:-7])
    with pytest.raises(
        CodedError,
        match=r"b\.tfrecord: record 9 is damaged: .* 7 bytes",
        check=lambda error: error.code is Code.DATA_LOSS,
    ):
        run_predict(model, tmp_path, tmp_path / "*.tfrecord")
    assert names(out) == ["predict.json", "predictions-00000-of-00003.tfrecord"]
    first = os.stat(out / "predictions-00000-of-00003.tfrecord")
    cut.write_bytes(whole)
    report = run_predict(model, tmp_path, tmp_path / "*.tfrecord")
    assert (report.files, report.skipped_files, report.rows) == (3, 1, 20)
    assert os.stat(out / "predictions-00000-of-00003.tfrecord") == first
    files = sorted(out.glob("*.tfrecord"))
    outputs = [models.outputs(models.read_logs(path), "y") for path in files]
    np.testing.assert_array_equal(np.concatenate(outputs), 2 * x)


@pytest.mark.parametrize("remaining_bytes", [1, 11, 12, 30])
@pytest.mark.parametrize("name", ["data", "data.gz", "data.jsonl.gz"])
def test_no_cut_goes_unnoticed(
    model: Path, tmp_path: Path, name: str, remaining_bytes: int
) -> None:
    x = models.values(4)
    path = models.write_records(tmp_path / name, [models.example(row) for row in x])
    if "jsonl" in name:
        path = models.write_lines(tmp_path / name, x.tolist())
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes())[:-remaining_bytes])
    else:
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) * 3 // 4 + remaining_bytes])
    with pytest.raises((CodedError, InvalidJson), match="data"):
        run_predict(model, tmp_path, path)
    assert not (tmp_path / "out").exists()


def test_an_error_in_the_first_file_leaves_no_directory(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.tfrecord"
    path.write_bytes(b"this is no TFRecord file")
    with pytest.raises(
        CodedError, match="record 0 is damaged", check=lambda error: error.code is Code.DATA_LOSS
    ):
        run_predict(model, tmp_path, path)
    assert not (tmp_path / "out").exists()


def test_a_run_of_other_arguments_is_refused(model: Path, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    run_predict(model, tmp_path, tmp_path / "a.tfrecord")
    before = names(tmp_path / "out")
    with pytest.raises(
        CodedError,
        match="differs in: inputs",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(model, tmp_path, tmp_path / "b.tfrecord")
    with pytest.raises(
        CodedError,
        match="differs in: signature, output-format",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(
            model,
            tmp_path,
            tmp_path / "a.tfrecord",
            signature_name="examples",
            output_format=OutputFormat.JSON_LINES,
        )
    (tmp_path / "a.tfrecord").write_bytes((tmp_path / "b.tfrecord").read_bytes()[:50])
    with pytest.raises(
        CodedError,
        match=r"a\.tfrecord has changed",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(model, tmp_path, tmp_path / "a.tfrecord")
    assert names(tmp_path / "out") == before


def test_a_directory_of_other_files_is_refused(model: Path, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(
        CodedError,
        match=r"thesis\.tex, and no predict\.json",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(model, tmp_path, tmp_path / "a.tfrecord")
    assert names(tmp_path / "out") == ["thesis.tex"]
    for text in ("{", "[]"):
        (tmp_path / "out" / "predict.json").write_text(text)
        with pytest.raises(
            CodedError,
            match="another run",
            check=lambda error: error.code is Code.FAILED_PRECONDITION,
        ):
            run_predict(model, tmp_path, tmp_path / "a.tfrecord")


def test_a_description_without_states_is_of_another_run(model: Path, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    run_predict(model, tmp_path, tmp_path / "a.tfrecord")
    description = tmp_path / "out" / "predict.json"
    entries = json.loads(description.read_text())
    del entries["input-states"]
    description.write_text(json.dumps(entries))
    with pytest.raises(
        CodedError,
        match="differs in: input-states",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(model, tmp_path, tmp_path / "a.tfrecord")


def test_a_model_with_other_variables_behind_a_link_is_another(tmp_path: Path) -> None:
    digests = set()
    for content in ("a", "b"):
        variables, linked = tmp_path / content, tmp_path / "model" / content
        variables.mkdir()
        (variables / "variables.index").write_text(content)
        linked.mkdir(parents=True)
        (linked / "variables").symlink_to(variables)
        run = describe_run(linked, [], "", "", None, OutputFormat.PARQUET)
        digests.add(run["model"])
    assert len(digests) == 2


def test_a_directory_that_another_run_writes_is_refused(model: Path, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    path = tmp_path / "a.tfrecord"
    description = describe_run(
        model, [str(path)], "serving_default", "", None, OutputFormat.PREDICTION_LOGS
    )
    with (
        OutputDirectory(tmp_path / "out", description, ".tfrecord"),
        pytest.raises(
            CodedError,
            match="in use by another process",
            check=lambda error: error.code is Code.FAILED_PRECONDITION,
        ),
    ):
        run_predict(model, tmp_path, path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"x": [1, 2]', "line 2 of .* is no JSON"),
        ('{"x": [1, "2"]}', "line 2 of .*: the input 'x' is not of float32"),
        ('{"x": [1, [2]]}', "line 2 of .*: the input 'x' is a list whose elements differ"),
        ('{"x": [1, 2, 3]}', r"line 2 of .*: the input 'x' has the shape \[3\], before it \[2\]"),
        ('{"z": [1, 2]}', "line 2 of .*: Signature input alias: x"),
    ],
)
def test_an_invalid_line_is_named(model: Path, tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"x": [1, 2]}\n' + line + "\n")
    with pytest.raises(InvalidJson, match=message):
        run_predict(model, tmp_path, path)
    assert not (tmp_path / "out").exists()


def test_numbers_out_of_range_and_wrong_base64_are_refused(model: Path, tmp_path: Path) -> None:
    for row, message in (
        ({"text": "a", "number": 2**63}, "'number' is out of the range of int64"),
        ({"text": {"b64": "?"}, "number": 1}, "'text' is no base64"),
        ({"text": 1, "number": 1}, "'text' is not of string"),
        ({"text": "a"}, "number"),
    ):
        path = models.write_lines(tmp_path / "data.jsonl", [row])
        with pytest.raises(InvalidJson, match=message):
            run_predict(model, tmp_path, path, signature_name="name")


def refuse(
    model: Path, tmp_path: Path, error: type[TpuserveError], match: str, **options: Any
) -> None:
    path = models.write_records(tmp_path / "data", [models.example(models.values(1)[0])] * 2)
    with pytest.raises(error, match=match):
        run_predict(model, tmp_path, path, **options)
    assert not (tmp_path / "out").exists()


def test_records_that_do_not_fit_are_refused(model: Path, tmp_path: Path) -> None:
    refuse(model, tmp_path, SignatureNotFound, "other", signature_name="other")
    refuse(model, tmp_path, CodedError, "'total' has the shape", signature_name="total")
    refuse(model, tmp_path, InvalidTensor, "does not fit the signature", signature_name="name")
    refuse(
        model,
        tmp_path,
        TpuserveError,
        "--input-format",
        input_format=InputFormat.REQUESTS,
    )
    refuse(
        model,
        tmp_path,
        InvalidInput,
        "record 0 of .*: it is a PredictionLog without content",
        input_format=InputFormat.PREDICTION_LOGS,
    )


def test_a_record_that_the_graph_refuses_is_named(model: Path, tmp_path: Path) -> None:
    good = models.example([1, 2])
    path = models.write_records(tmp_path / "data", [good] * 5 + [b"\xff"])
    with pytest.raises(InvalidTensor, match="data, records 4 to 5: "):
        run_predict(model, tmp_path, path, signature_name="examples")


def test_the_first_error_of_a_file_is_raised(model: Path, tmp_path: Path) -> None:
    good = models.example([1, 2])
    records = [good] * 3 + [b"\xff"] + [b"\xff"] * 8
    path = models.write_records(tmp_path / "data", records)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidTensor, match="data, records 0 to 3: "):
        run_predict(model, tmp_path, path, signature_name="examples")


def test_a_pattern_without_files_is_an_error(model: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="matches no file"):
        run_predict(model, tmp_path, tmp_path / "*.none")


def test_whole_tensors_have_no_lines(model: Path, tmp_path: Path) -> None:
    request = models.request(models.values(2), "total")
    path = models.write_records(tmp_path / "data", [request.SerializeToString()])
    with pytest.raises(
        CodedError,
        match=r"total \[\]\. Write them with",
        check=lambda error: error.code is Code.FAILED_PRECONDITION,
    ):
        run_predict(
            model,
            tmp_path,
            path,
            input_format=InputFormat.REQUESTS,
            output_format=OutputFormat.JSON_LINES,
        )


def test_progress_reports_files_and_rows(model: Path, tmp_path: Path) -> None:
    write_three_files(tmp_path)
    steps: list[tuple[int, int, str]] = []
    run_predict(model, tmp_path, tmp_path / "*.tfrecord", progress=lambda *step: steps.append(step))
    assert steps[0] == (0, 3, "loading the model")
    assert steps[-1][:2] == (3, 3)
    assert steps[-1][2].startswith("30 rows, ")
    assert steps[-1][2].endswith(" rows/s")
