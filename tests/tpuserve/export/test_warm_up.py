from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests import models
from tpuserve import tags
from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import BatchConfig, SavedModelWriter, WarmUp, warm_up
from tpuserve.export.tpu.batching import call_batched

v1 = tf.compat.v1
signatures = v1.saved_model.signature_def_utils

FEATURES = {"x": tf.io.FixedLenFeature([2], tf.float32)}


def write_warm_up(tmp_path: Path, build: Any, requests: WarmUp, tag: str = "serve") -> list[Any]:
    """Write the warm-up file of a graph, and return its records.

    Args:
      tmp_path: the directory to write to.
      build: builds the graph; returns signature name → SignatureDef.
      requests: the requests to write.
      tag: the tag of the metagraph.
    """
    with tf.Graph().as_default() as graph:
        built = build()
        meta_graph = v1.train.export_meta_graph(graph=graph, clear_extraneous_savers=True)
    meta_graph.meta_info_def.tags.append(tag)
    for name, array in built.items():
        meta_graph.signature_def[name].CopyFrom(array)
    count = warm_up.write_warm_up_file(tmp_path, meta_graph, requests)
    records = read_logs(tmp_path)
    assert len(records) == count
    return records


def read_logs(directory: Path) -> list[Any]:
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


def raw(first: int | None = None) -> dict[str, Any]:
    x = v1.placeholder(tf.float32, [first, 2], name="x")
    word = v1.placeholder(tf.string, [first], name="word")
    return {"serving_default": signatures.predict_signature_def({"x": x, "w": word}, {"y": x + 1})}


def parsing() -> dict[str, Any]:
    serialized = v1.placeholder(tf.string, [None])
    x = tf.io.parse_example(serialized, FEATURES)["x"]
    return {
        "classify": signatures.classification_signature_def(serialized, None, x),
        "regress": signatures.regression_signature_def(serialized, x),
        "predict": signatures.predict_signature_def({"examples": serialized}, {"y": x}),
    }


def batching() -> dict[str, Any]:
    x = v1.placeholder(tf.float32, [None])
    y = call_batched(lambda x: x + 1.0, x, BatchConfig(1, 8, 1000, [2, 8]))
    return {"serving_default": signatures.predict_signature_def({"x": x}, {"y": y})}


def array(record: Any, alias: str) -> Any:
    return tf.make_ndarray(record.predict_log.request.inputs[alias])


def test_one_record_is_written_for_each_signature_and_batch_size(tmp_path: Path) -> None:
    records = write_warm_up(tmp_path, raw, WarmUp(batch_sizes=[3, 1]))
    assert [array(log, "x").shape for log in records] == [(1, 2), (3, 2)]
    assert {log.predict_log.request.model_spec.signature_name for log in records} == {
        "serving_default"
    }


def test_the_batch_sizes_are_those_that_the_graph_allows(tmp_path: Path) -> None:
    records = write_warm_up(tmp_path, batching, WarmUp())
    assert [array(log, "x").shape for log in records] == [(2,), (8,)]


def test_a_signature_of_a_fixed_size_gets_that_size(tmp_path: Path) -> None:
    (record,) = write_warm_up(tmp_path, lambda: raw(5), WarmUp(batch_sizes=[1, 8]))
    assert array(record, "x").shape == (5, 2)


def test_each_method_has_requests_of_its_kind(tmp_path: Path) -> None:
    classify, predict, regress = write_warm_up(tmp_path, parsing, WarmUp(batch_sizes=[2]))
    kinds = [log.WhichOneof("log_type") for log in (classify, predict, regress)]
    assert kinds == ["classify_log", "predict_log", "regress_log"]
    for log in (classify.classify_log, regress.regress_log):
        rows = log.request.input.example_list.examples
        assert [len(row.features.feature["x"].float_list.value) for row in rows] == [2, 2]
    parsed = tf.io.parse_example(array(predict, "examples"), FEATURES)
    assert parsed["x"].shape == [2, 2]


def test_given_rows_are_repeated_to_fill_a_batch(tmp_path: Path) -> None:
    rows = {"x": [[1.0, 2.0], [3.0, 4.0]], "w": ["a"]}
    (record,) = write_warm_up(tmp_path, raw, WarmUp(batch_sizes=[3], inputs=rows))
    assert array(record, "x").tolist() == [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]
    assert array(record, "w").tolist() == [b"a", b"a", b"a"]


def test_missing_inputs_are_generated_from_the_seed(tmp_path: Path) -> None:
    inputs = {"w": ["a"]}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_warm_up(tmp_path / name, raw, WarmUp(inputs=inputs, seed=seed))
    first, same, other = (array(read_logs(tmp_path / name)[0], "x").tolist() for name in "abc")
    assert first == same != other


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"z": [1.0]}, "'z' are inputs of no signature; found 'w', 'x'"),
        ({"x": np.ones([1, 2])}, "is of type float64, and the signature takes float32"),
        ({"x": np.ones([1, 3], np.float32)}, r"has shape \(1, 3\), and .* \(None, 2\)"),
        ({"x": np.ones([0, 2], np.float32)}, "has no rows"),
        ({"x": 1.0}, "has no rows"),
        ({"w": [1]}, "and the signature takes strings"),
    ],
)
def test_inputs_that_fit_no_signature_are_refused(
    tmp_path: Path, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        write_warm_up(tmp_path, raw, WarmUp(inputs=inputs))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_sizes": [0]}, InvalidSetting),
        ({"batch_sizes": []}, InvalidSetting),
        ({"batch_sizes": [1.5]}, InvalidType),
        ({"batch_sizes": 8}, InvalidType),
        ({"inputs": [1.0]}, InvalidType),
    ],
)
def test_impossible_settings_are_refused(arguments: Any, error: Any) -> None:
    with pytest.raises(error):
        WarmUp(**arguments)


def test_more_records_than_a_server_takes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="1001 records, and TensorFlow Serving takes 1000"):
        write_warm_up(tmp_path, raw, WarmUp(batch_sizes=range(1, 1002)))


def test_a_model_that_is_not_served_has_no_warm_up(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no metagraph has a signature that is served"):
        write_warm_up(tmp_path, raw, WarmUp(), tag="eval")


def export(base: Path, requests: WarmUp, extra: dict[str, str] | None = None) -> Path:
    with SavedModelWriter(str(base), warm_up=requests, assets_extra=extra) as writer:
        for tag_set in (tags.SERVE, tags.SERVE_TPU):
            writer.add(models.metagraph(models.half_plus_two, tag_set))
    return Path(writer.directory)


def test_the_writer_writes_one_set_of_records_for_both_metagraphs(tmp_path: Path) -> None:
    (record,) = read_logs(export(tmp_path, WarmUp(inputs={"x": [[4.0]]})))
    assert array(record, "x").tolist() == [[4.0]]


def test_an_invalid_warm_up_leaves_no_export_behind(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="'y' are inputs of no signature"):
        export(tmp_path / "a", WarmUp(inputs={"y": [[4.0]]}))
    with pytest.raises(InvalidSetting, match="assets_extra has .*Leave one of them out"):
        export(tmp_path / "b", WarmUp(), {"tf_serving_warmup_requests": __file__})
    assert [path.name for path in tmp_path.glob("*/*")] == []


def counting() -> dict[str, Any]:
    x = v1.placeholder(tf.float32, [None], name="x")
    n = v1.get_variable("n", initializer=0.0, use_resource=True)
    return {
        "add": signatures.predict_signature_def(
            {"x": x}, {"n": n.assign_add(1.0, read_value=True)}
        ),
        "read": signatures.predict_signature_def({"x": x}, {"n": n + x}),
    }


def test_no_request_is_generated_for_a_signature_that_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = write_warm_up(tmp_path, counting, WarmUp())
    assert [log.predict_log.request.model_spec.signature_name for log in records] == ["read"]
    assert "signature 'add': it updates a variable (AssignAddVariableOp, node " in caplog.text
    given = write_warm_up(tmp_path, counting, WarmUp(inputs={"x": [1.0]}))
    assert [log.predict_log.request.model_spec.signature_name for log in given] == ["add", "read"]


def test_a_model_that_only_writes_gets_no_file_of_generated_requests(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        signature = counting()["add"]
        meta_graph = v1.train.export_meta_graph(graph=graph, clear_extraneous_savers=True)
    meta_graph.meta_info_def.tags.append("serve")
    meta_graph.signature_def["add"].CopyFrom(signature)
    assert warm_up.write_warm_up_file(tmp_path, meta_graph, WarmUp()) == 0
    assert list(tmp_path.iterdir()) == []
