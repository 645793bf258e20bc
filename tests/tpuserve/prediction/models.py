"""A model whose signatures take what files of records hold, and such files."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from tests.tpuserve import saved_models


class _Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def double(self, x: Any) -> dict[str, Any]:
        y = self.weight * x
        return {"y": y, "sum": tf.reduce_sum(y, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def double_examples(self, examples: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return self.double(parsed["x"])

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)]
    )
    def name(self, text: Any, number: Any) -> dict[str, Any]:
        return {"name": tf.strings.join([text, tf.strings.as_string(number)], b"-")}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def total(self, x: Any) -> dict[str, Any]:
        return {"total": tf.reduce_sum(x)}


def save(directory: Path) -> Path:
    """Write the SavedModel; return its directory."""
    model = _Model()
    signatures = {
        "serving_default": model.double,
        "examples": model.double_examples,
        "name": model.name,
        "total": model.total,
    }
    tf.saved_model.save(model, str(directory), signatures=signatures)
    return directory


def values(rows: int, seed: int = 0) -> Any:
    """Return inputs of `double`: float32 [rows, 2]."""
    return np.random.default_rng(seed).normal(size=[rows, 2]).astype(np.float32)


def example(x: Iterable[float]) -> bytes:
    """Return a serialised tf.train.Example with the feature x."""
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=x))
    features = tf.train.Features(feature={"x": feature})
    return bytes(tf.train.Example(features=features).SerializeToString())


def request(x: Any, signature_name: str = "", output_filter: Sequence[str] = ()) -> Any:
    """Return a PredictRequest with the input x."""
    message = predict_pb2.PredictRequest(output_filter=output_filter)
    message.model_spec.signature_name = signature_name
    message.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    return message


def examples_log(method: str, examples: Iterable[bytes], signature_name: str = "") -> bytes:
    """Return a serialised PredictionLog with a Classify or Regress request."""
    message = prediction_log_pb2.PredictionLog()
    request = getattr(message, f"{method}_log").request
    request.model_spec.signature_name = signature_name
    request.input.example_list.SetInParent()
    for each in examples:
        request.input.example_list.examples.add().MergeFromString(each)
    return bytes(message.SerializeToString())


def log(message: Any) -> bytes:
    """Return a serialised PredictionLog with a request."""
    predict_log = prediction_log_pb2.PredictLog(request=message)
    return bytes(prediction_log_pb2.PredictionLog(predict_log=predict_log).SerializeToString())


def write_records(path: Path, records: Iterable[bytes]) -> Path:
    """Write a TFRecord file."""
    path.write_bytes(saved_models.tf_records(*records))
    return path


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_logs(path: Path) -> list[Any]:
    """Return the PredictLogs of a TFRecord file, which TensorFlow reads."""
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]


def outputs(logs: Sequence[Any], alias: str) -> Any:
    """Return an output of PredictLogs, joined: [rows, ...]."""
    return np.concatenate([tf.make_ndarray(log.response.outputs[alias]) for log in logs])


def inputs(logs: Sequence[Any], alias: str) -> Any:
    """Return an input of PredictLogs, joined: [rows, ...]."""
    return np.concatenate([tf.make_ndarray(log.request.inputs[alias]) for log in logs])
