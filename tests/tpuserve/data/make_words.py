"""Writes words/, a small real export that tests read without TensorFlow.

    $ TF_USE_LEGACY_KERAS=1 python tests/tpuserve/data/make_words.py

The model is a text classifier. The host looks words up in a vocabulary. A BatchFunction merges
requests, and calls a TPU computation: dense layers, and an outside-compiled op that returns the
argmax as text. The CPU metagraph computes the same without BatchFunction and TPU computation.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_serving.apis import prediction_log_pb2

from tpuserve.export.tpu.tpu_call import on_tpu

DIRECTORY = Path(__file__).parent / "words"
WORDS = "good\nbad\nfine\n"
BATCH_SIZES = (1, 4)


def dense(identifiers: Any) -> tuple[Any, Any]:
    with tf.variable_scope("dense", reuse=tf.AUTO_REUSE, use_resource=True):
        embedding = tf.get_variable("embedding", [4, 8])
        kernel = tf.get_variable("kernel", [8, 2])
        bias = tf.get_variable("bias", [2], initializer=tf.zeros_initializer())
    mean = tf.reduce_mean(tf.nn.embedding_lookup(embedding, identifiers), axis=1)
    logits = tf.matmul(mean, kernel) + bias
    return tf.nn.softmax(logits), tf.argmax(logits, axis=1, output_type=tf.int32)


def on_cpu(identifiers: Any) -> tuple[Any, Any]:
    scores, best = dense(identifiers)
    return scores, tf.as_string(best)


def batched_on_tpu(identifiers: Any) -> tuple[Any, Any]:
    def computation(inputs: Any) -> list[Any]:
        scores, best = dense(inputs)
        return [scores, tf.tpu.outside_compilation(tf.as_string, best)]

    @tf.nondifferentiable_batch_function(
        num_batch_threads=2,
        max_batch_size=4,
        batch_timeout_micros=5000,
        allowed_batch_sizes=list(BATCH_SIZES),
        max_enqueued_batches=100,
    )
    def batched(inputs: Any) -> list[Any]:
        return on_tpu(computation, inputs)

    scores, best = batched(identifiers)
    scores.set_shape([None, 2])
    best.set_shape([None])
    return scores, best


def build_model(model: Callable[[Any], tuple[Any, Any]], vocabulary: Path) -> dict[str, Any]:
    asset = tf.constant(str(vocabulary))
    tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, asset)
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            asset,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        num_oov_buckets=1,
        lookup_key_dtype=tf.string,
    )
    words = tf.placeholder(tf.string, [None, 5], name="words")
    with tf.variable_scope("model"):
        scores, best = model(tf.cast(table.lookup(words), tf.int32))
    signature = tf.saved_model.predict_signature_def(
        {"words": words}, {"scores": scores, "best": best}
    )
    return {"serving_default": signature}


def write_warm_up(path: Path) -> None:
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for size in BATCH_SIZES:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = "serving_default"
            batch = tf.make_tensor_proto([[b"good"] * 5] * size)
            request.inputs["words"].CopyFrom(batch)
            writer.write(log.SerializeToString(deterministic=True))


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    vocabulary = DIRECTORY.with_name("vocabulary.txt")
    vocabulary.write_text(WORDS)
    builder = tf.saved_model.Builder(str(DIRECTORY))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        signatures = build_model(on_cpu, vocabulary)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signatures,
            tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
            strip_default_attrs=True,
        )
    with tf.Graph().as_default():
        builder.add_meta_graph(
            ["serve", "tpu"],
            build_model(batched_on_tpu, vocabulary),
            tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
            strip_default_attrs=True,
        )
    builder.save()
    vocabulary.unlink()
    write_warm_up(DIRECTORY / "assets.extra" / "tf_serving_warmup_requests")


if __name__ == "__main__":
    main()
