"""Exports a model whose signatures need each kind of form."""

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tpuserve.saved_model.signature import CLASSIFY_METHOD

FEATURES = {
    "age": tf.io.FixedLenFeature([], tf.int64),
    "colours": tf.io.VarLenFeature(tf.string),
    "weights": tf.io.FixedLenFeature([2], tf.float32),
}


class Forms(tf.Module):
    """Has a signature for each kind of form."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def half_plus_two(self, x: Any) -> Any:
        return {"y": x / 2 + 2}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="count")])
    def next_integer(self, count: Any) -> Any:
        return {"next": count + 1}

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32, name="image")])
    def mean_colour(self, image: Any) -> Any:
        return {"colour": tf.reduce_mean(image, [1, 2])}

    @tf.function(input_signature=[tf.TensorSpec([None, 224, 224, 3], tf.uint8, name="photo")])
    def photo_size(self, photo: Any) -> Any:
        return {"maximum": tf.reduce_max(tf.cast(photo, tf.int32), [1, 2, 3])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="file")])
    def picture_height(self, file: Any) -> Any:
        heights = tf.map_fn(
            lambda data: tf.shape(tf.io.decode_jpeg(data, channels=3))[0],
            file,
            fn_output_signature=tf.int32,
        )
        return {"height": heights}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def age_next_year(self, examples: Any) -> Any:
        parsed = tf.io.parse_example(examples, FEATURES)
        first = tf.sparse.to_dense(parsed["colours"], default_value="none")[:, 0]
        return {
            "age": parsed["age"] + 1,
            "colour": first,
            "weight": tf.reduce_sum(parsed["weights"], 1),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs: Any) -> Any:
        weights = tf.io.parse_example(inputs, FEATURES)["weights"]
        return {
            "classes": tf.tile([[b"light", b"heavy"]], [tf.shape(weights)[0], 1]),
            "scores": weights,
        }


def export(directory: Path) -> None:
    """Write a SavedModel to a version's directory."""
    module = Forms()
    names = [name for name, value in vars(Forms).items() if hasattr(value, "get_concrete_function")]
    signatures = {
        "serving_default" if name == "half_plus_two" else name: getattr(module, name)
        for name in names
    }
    tf.saved_model.save(module, str(directory), signatures)
    # tf.saved_model.save knows no method but Predict.
    path = directory / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        meta_graph.signature_def["classify"].method_name = CLASSIFY_METHOD
    path.write_bytes(saved_model.SerializeToString())
