"""Writes SavedModels that have only a CPU metagraph, to be converted."""

from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

WORDS = ("a", "b", "c")


class Dense(tf.Module):
    """Computes y = relu(x w) + 1; the product and the relu are in a function with an alias."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[1.0, -1.0], [2.0, 0.5]])
        self.project = tf.function(
            lambda x: tf.nn.relu(x @ self.w), [tf.TensorSpec([None, 2], tf.float32)]
        )

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def serve(self, x: Any) -> Any:
        return {"y": self.project(x) + 1.0}


class WordScores(tf.Module):
    """Computes scores = w times the mean of word vectors; a table maps words to vectors."""

    def __init__(self) -> None:
        super().__init__()
        words = tf.lookup.KeyValueTensorInitializer(WORDS, tf.constant([1, 2, 3], tf.int64))
        self.table = tf.lookup.StaticHashTable(words, 0)
        self.vectors = tf.Variable([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(self, text: Any) -> Any:
        words = tf.strings.split(text).to_tensor("", shape=[None, 2])
        mean = tf.reduce_mean(tf.nn.embedding_lookup(self.vectors, self.table.lookup(words)), 1)
        # The number of rows comes from the strings, which the TPU does not see.
        scores = tf.reshape(mean, tf.stack([tf.shape(text)[0], 2])) @ self.w
        best = tf.gather(tf.constant(["low", "high"]), tf.argmax(scores, -1))
        return {"scores": scores, "best": best, "text": text}


class WordSums(tf.Module):
    """Computes sums = w times the sum of the vectors of a text's words, without padding texts."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = tf.Variable([[1.0, 10.0]])
        self.w = tf.Variable([[1.0, 0.0], [0.0, 2.0]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(self, text: Any) -> Any:
        words = tf.strings.split(text)
        # There is a vector for each word of all texts, so the first dimension is not the batch.
        vectors = tf.gather(self.vectors, tf.strings.to_hash_bucket_fast(words.values, 1))
        rows = words.value_rowids()
        return {"sums": tf.math.unsorted_segment_sum(vectors, rows, tf.size(text)) @ self.w}


class Detector(tf.Module):
    """Computes boxes by a dense layer, and selects boxes by non-maximum suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.eye(5))

    @tf.function(input_signature=[tf.TensorSpec([None, 5], tf.float32, "features")])
    def serve(self, features: Any) -> Any:
        boxes = features @ self.w
        indices = tf.image.non_max_suppression(boxes[:, :4], boxes[:, 4], 10, 0.5)
        return {"scores": tf.gather(boxes[:, 4], indices)}


class CheckedModel(tf.Module):
    """Doubles x, and checks that x is not negative and that the result is finite and below 100."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serve(self, x: Any) -> Any:
        tf.debugging.assert_non_negative(x)
        y = x * self.w
        tf.debugging.assert_all_finite(y, "not finite")
        tf.debugging.assert_less(y, 100.0)
        return {"y": y}


class Upper(tf.Module):
    """Converts strings to upper case, which no TPU can do."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(self, text: Any) -> Any:
        return {"upper": tf.strings.upper(text)}


class Positive(tf.Module):
    """Keeps the positive numbers, however many there are, and doubles them."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def serve(self, x: Any) -> Any:
        return {"y": 2.0 * tf.boolean_mask(x, x > 0)}


def save(model: Any, directory: Path, **signatures: Any) -> Path:
    """Save a module with its function `serve` as the default signature."""
    options = None
    if hasattr(model, "project"):
        options = tf.saved_model.SaveOptions(function_aliases={"tpu_candidate": model.project})
    tf.saved_model.save(
        model, str(directory), {"serving_default": model.serve, **signatures}, options
    )
    return directory


def save_version_1(directory: Path, vocabulary: Path) -> Path:
    """Save a model of TensorFlow 1 with ref variables; it parses tf.Examples and has an asset.

    p = sigmoid(x w + bias of the word), with w = [1, 2]. The bias of "a", "b", "c" is 0, 1, 2.
    """
    vocabulary.write_text("\n".join(WORDS))
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=[[1.0], [2.0]], use_resource=False)
        bias = v1.get_variable("bias", initializer=[0.0, 1.0, 2.0], use_resource=False)
        examples = v1.placeholder(tf.string, [None], "examples")
        features = v1.io.parse_example(
            examples,
            {
                "x": v1.io.FixedLenFeature([2], tf.float32),
                "word": v1.io.FixedLenFeature([], tf.string, "a"),
            },
        )
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            0,
        )
        word_bias = tf.gather(bias, table.lookup(features["word"]))
        p = tf.sigmoid(features["x"] @ w + word_bias[:, tf.newaxis])
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.builder.SavedModelBuilder(str(directory))
        # Build the signature as v1.saved_model.predict_signature_def does, without its warnings.
        build = v1.saved_model.signature_def_utils
        describe = v1.saved_model.utils.build_tensor_info
        inputs = {"x": describe(features["x"]), "word": describe(features["word"])}
        outputs = {"p": describe(p)}
        method = "tensorflow/serving/predict"
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": build.build_signature_def(
                    {"examples": describe(examples)}, outputs, method
                ),
                "raw": build.build_signature_def(inputs, outputs, method),
            },
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer(),
            strip_default_attrs=True,
        )
        builder.save()
    return directory
