"""Sources of old programs, for the tests of the static analysis."""

import textwrap
from pathlib import Path

from trainer.migration import migration_report
from trainer.migration.findings import NameFinding
from trainer.migration.migration_report import ProgramReport

BERT_LIKE = """
    from __future__ import absolute_import
    import collections
    import six
    import tensorflow as tf
    from tensorflow.contrib import cluster_resolver as contrib_cluster_resolver
    from tensorflow.contrib import tpu as contrib_tpu
    from tensorflow.python.estimator.run_config import RunConfig
    from tensorflow.python.ops import control_flow_ops
    from tensorflow_estimator.python.estimator.tpu import tpu_estimator

    flags = tf.flags
    FLAGS = flags.FLAGS
    flags.DEFINE_string("data_dir", None, "Where the data is.")
    flags.DEFINE_bool("use_tpu", False, "Whether to use a TPU.")
    tf.flags.DEFINE_string("master", None, "The TPU.")


    def model_fn_builder(num_labels):
        def model_fn(features, labels, mode, params):
            tvars = tf.trainable_variables()
            w = tf.get_variable("w", [2], initializer=tf.truncated_normal_initializer(stddev=0.02))
            with tf.variable_scope("loss"):
                logits = tf.nn.bias_add(tf.matmul(features, w, transpose_b=True), w)
                log_probs = tf.nn.log_softmax(logits, axis=-1)
                one_hot = tf.one_hot(labels, depth=num_labels, dtype=tf.float32)
                loss = tf.reduce_mean(-tf.reduce_sum(one_hot * log_probs, axis=-1))
            tf.train.init_from_checkpoint("x", {})
            optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer())
            train_op = control_flow_ops.group(optimizer.minimize(loss))
            if mode == tf.estimator.ModeKeys.EVAL:
                metrics = (lambda x: {"a": tf.metrics.accuracy(x, x)}, [logits])
                return contrib_tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=metrics)
            return tpu_estimator.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)

        return model_fn


    def parse(record):
        return tf.parse_single_example(record, {"a": tf.FixedLenFeature([], tf.int64)})


    def main(_):
        tf.logging.set_verbosity(tf.logging.INFO)
        tf.gfile.MakeDirs("out")
        cluster = contrib_cluster_resolver.TPUClusterResolver("")
        way = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
        config = tf.contrib.tpu.RunConfig(
            cluster=cluster,
            master=FLAGS.master,
            tpu_config=tf.contrib.tpu.TPUConfig(1000, per_host_input_for_training=way),
        )
        estimator = tf.contrib.tpu.TPUEstimator(
            use_tpu=FLAGS.use_tpu, model_fn=model_fn_builder(2), config=config, train_batch_size=8
        )
        data = tf.data.TFRecordDataset("x")
        data = data.apply(tf.contrib.data.map_and_batch(parse, 8, drop_remainder=True))
        for k in six.iterkeys(collections.OrderedDict()):
            tf.logging.info("%s", k)


    if __name__ == "__main__":
        flags.mark_flag_as_required("data_dir")
        tf.app.run()
"""

# Each of the names that this program uses raises an error.
BROKEN = """
    import tensorflow as tf
    import tensorflow.contrib.gan as gan
    from tensorflow.contrib import learn
    from tensorflow.examples.tutorials.mnist import input_data
    from tensorflow.python.keras._impl.keras import estimator

    tf.contrib.seq2seq.BeamSearchDecoder
    tf.contrib.tpu.TPUEstimater
    tf.estimator.BoostedTreesClassifier
    tf.estimator.LinearRegressr
    tf.gradientz
    tf.train.AdamOptimiser
    tf.python.framework.ops
    tf.contrib.tpu.python.tpu.tpu_configs.TPUConfig
    tf.compat.v1.contrib.gan
    tf.Session
"""


# The same for a TensorFlow 2 program: none of its names shows that it is written for TensorFlow 1.
BROKEN_V2 = """
    import tensorflow as tf
    import tensorflow.compat.v1 as tf1

    tf.estimator.BoostedTreesClassifier
    tf.keras.layers.Dens
    tf.nn.reluu
    tf1.data.Datasett
    tf1.estimator.inputs.numpy_input
    tf1.Sessions
    tf.optimizers.Adamm
"""


def write_file(directory: Path, name: str, source: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path


def report_of(directory: Path, source: str) -> ProgramReport:
    return migration_report.analyze_program(write_file(directory, "program.py", source))


def findings_of(directory: Path, source: str) -> dict[str, NameFinding]:
    """Write a source and analyse it; return name as written → finding."""
    return {finding.written: finding for finding in report_of(directory, source).findings}
