"""Checks that the program gets TensorFlow 1's behaviour; each function is one check."""

import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

import first_version_part

assert not tf.executing_eagerly()
os.chdir(tempfile.mkdtemp())

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


@check
def dimensions_have_values():
    x = tf.placeholder(tf.float32, [None, 3])
    assert x.shape[0].value is None and x.shape[1].value == 3
    assert x.get_shape()[1] == tf.Dimension(3)


@check
def variables_are_compared_by_identity_and_shared_by_name():
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        v = tf.get_variable("v", [2], initializer=tf.truncated_normal_initializer(stddev=0.02))
        assert tf.get_variable("v", [2]) is v and {v: 1}[v] == 1
    assert [variable.name for variable in tf.trainable_variables()] == ["a/v:0"]


@check
def old_arguments_and_names_of_functions_work():
    x = tf.constant([[1.0, 2.0]])
    total = tf.reduce_sum(x, keep_dims=True)
    last = tf.argmax(x, dimension=1)
    half = tf.div(tf.to_float(tf.to_int32(x)), 2.0)
    dropout = tf.nn.dropout(x, keep_prob=1.0)
    dense = tf.sparse_to_dense([1], [3], 1)
    with tf.Session() as session:
        arrays = session.run([total, last, half, dropout, dense])
    assert [array.tolist() for array in arrays] == [
        [[3.0]],
        [1],
        [[0.5, 1.0]],
        [[1.0, 2.0]],
        [0, 1, 0],
    ]


@check
def layers_keep_their_losses_and_updates_in_the_graph():
    images = tf.zeros([1, 8, 8, 3])
    tf.layers.conv2d(images, 4, 3, kernel_regularizer=tf.keras.regularizers.l2(0.1))
    tf.layers.batch_normalization(images, training=True)
    assert len(tf.losses.get_regularization_losses()) == 1
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2


@check
def recurrent_cells_run():
    cells = [
        tf.nn.rnn_cell.BasicLSTMCell(4),
        tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.GRUCell(4)),
    ]
    cell = tf.nn.rnn_cell.MultiRNNCell(cells)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.zeros([2, 3, 5]), dtype=tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(outputs).shape == (2, 3, 4)


@check
def datasets_have_iterators():
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(4)).apply(
        tf.data.experimental.map_and_batch(lambda x: x + 1, 2)
    )
    iterator = tf.data.Iterator.from_structure(dataset.output_types, dataset.output_shapes)
    start = iterator.make_initializer(dataset)
    with tf.Session() as session:
        assert session.run(dataset.make_one_shot_iterator().get_next()).tolist() == [1, 2]
        session.run(start)
        assert session.run(iterator.get_next()).tolist() == [1, 2]


@check
def queues_and_readers_run():
    with tf.gfile.FastGFile("lines.txt", "w") as lines:
        lines.write("one")
    queue = tf.train.string_input_producer(["lines.txt"], num_epochs=1)
    _, line = tf.TextLineReader().read(queue)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        assert session.run(line) == b"one"
        coordinator.request_stop()
        coordinator.join(threads)


@check
def records_are_written_and_read():
    with tf.python_io.TFRecordWriter("one.records") as writer:
        writer.write(b"one")
    assert list(tf.python_io.tf_record_iterator("one.records")) == [b"one"]
    raw = tf.decode_raw(tf.constant(b"\x01\x02"), tf.uint8)
    example = tf.train.Example(
        features=tf.train.Features(
            feature={"label": tf.train.Feature(int64_list=tf.train.Int64List(value=[7]))}
        )
    )
    parsed = tf.parse_single_example(
        example.SerializeToString(), {"label": tf.FixedLenFeature([], tf.int64)}
    )
    with tf.Session() as session:
        assert session.run(raw).tolist() == [1, 2]
        assert session.run(parsed["label"]) == 7


@check
def sessions_have_hooks_and_write_checkpoints_and_summaries():
    step = tf.train.get_or_create_global_step()
    tf.summary.scalar("step", step)
    tf.logging.set_verbosity(tf.logging.ERROR)
    add = tf.assign_add(step, 1)
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir="run", hooks=[tf.train.StopAtStepHook(3)], save_summaries_steps=1
    ) as session:
        while not session.should_stop():
            session.run(add)
    assert tf.train.latest_checkpoint("run") == "run/model.ckpt-3"
    reader = tf.train.NewCheckpointReader("run/model.ckpt-3")
    from tensorflow.python import pywrap_tensorflow

    assert pywrap_tensorflow.NewCheckpointReader is tf.train.NewCheckpointReader
    assert reader.get_tensor("global_step") == 3
    tags = [
        value.tag
        for path in tf.gfile.Glob("run/events*")
        for event in tf.train.summary_iterator(path)
        for value in event.summary.value
    ]
    assert "step" in tags


@check
def keras_is_the_legacy_one_and_takes_old_optimizers():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    model.compile(tf.train.GradientDescentOptimizer(0.1), "mse")
    history = model.fit(np.ones((4, 3)), np.zeros((4, 2)), epochs=3, verbose=0).history["loss"]
    assert history[2] < history[0]


@check
def feature_columns_make_layers():
    letters = tf.feature_column.categorical_column_with_vocabulary_list("letter", ["a", "b"])
    columns = [
        tf.feature_column.embedding_column(letters, 3),
        tf.feature_column.numeric_column("n"),
    ]
    features = {"letter": tf.constant([["a"]]), "n": tf.constant([[1.0]])}
    assert tf.feature_column.input_layer(features, columns).shape.as_list() == [1, 4]


@check
def modules_of_the_program_see_it_and_libraries_do_not():
    import trainer.inputs.numpy_pandas as library

    assert first_version_part.tf is tf
    assert library.tf is sys.modules["tensorflow"] is not tf
    assert not hasattr(library.tf, "Session")


@check
def names_can_be_imported_in_all_forms():
    import tensorflow
    import tensorflow.compat.v1 as v1
    import tensorflow.contrib.tpu as contrib_tpu
    import tensorflow.gfile as gfile
    from tensorflow import flags, logging
    from tensorflow.contrib import tpu
    from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer
    from tensorflow.contrib.tpu.python.tpu.tpu_estimator import TPUEstimator
    from tensorflow.keras.layers import Dense
    from tensorflow.python.estimator import run_config
    from tensorflow.python.tpu import tpu_estimator as inner
    from tensorflow.train import Saver
    from tensorflow_estimator.python.estimator import model_fn
    from tensorflow_estimator.python.estimator.tpu import tpu_estimator as outer

    assert tensorflow is tf and gfile is tf.gfile and flags is tf.flags and logging is tf.logging
    assert contrib_tpu is tpu is tf.contrib.tpu is v1.contrib.tpu
    assert TPUEstimator is tpu.TPUEstimator is tf.estimator.tpu.TPUEstimator
    assert inner is outer is tpu_estimator and Dense is tf.keras.layers.Dense
    assert tpu_config.RunConfig is run_config.RunConfig is tf.estimator.RunConfig
    assert tpu_optimizer.CrossShardOptimizer is tpu.CrossShardOptimizer
    assert Saver is tf.train.Saver and model_fn.ModeKeys is v1.estimator.ModeKeys


@check
def parameters_of_embeddings_are_there():
    import tensorflow.compat.v1.tpu.experimental as experimental

    for name in ("Adagrad", "Adam", "Ftrl", "StochasticGradientDescent"):
        parameters = getattr(tf.tpu.experimental, name + "Parameters")(0.1)
        assert parameters.learning_rate == 0.1
        assert isinstance(parameters, getattr(tf.estimator.tpu.experimental, name + "Parameters"))
        assert isinstance(parameters, getattr(experimental, name + "Parameters"))


@check
def settings_of_embeddings_are_there():
    from tensorflow.python.tpu import tpu_embedding

    column = tf.feature_column.categorical_column_with_identity("x", 10)
    column = tf.tpu.experimental.embedding_column(column, dimension=2)
    parameters = tf.tpu.experimental.AdagradParameters(0.1)
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        feature_columns=[column], optimization_parameters=parameters
    )
    assert isinstance(spec, tf.contrib.tpu.EmbeddingConfigSpec)
    assert tpu_embedding.TableConfig is tf.contrib.tpu.TableConfig
    assert tpu_embedding.FeatureConfig(table_id="t").max_sequence_length == 0
    assert tpu_embedding.AdamParameters is tf.tpu.experimental.AdamParameters
    assert tpu_embedding.MomentumParameters(0.1, 0.9).momentum == 0.9
    assert not hasattr(tf.tpu.experimental, "MomentumParameters")


@check
def what_is_gone_says_what_replaces_it():
    from tensorflow.python.tpu import tpu_embedding

    for ask, words in (
        (lambda: tpu_embedding.TPUEmbedding, "embedding_config_spec"),
        (lambda: tpu_embedding.FrequencyEstimatorParameters, "Count the ids in input_fn"),
        (lambda: tf.estimator.BoostedTreesClassifier, "the package ydf"),
        (lambda: tf.Sesion, "Did you mean Session"),
    ):
        try:
            ask()
        except AttributeError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    try:
        from tensorflow.estimator import BoostedTreesRegressor
    except ImportError as error:
        assert "the package ydf" in str(error)
    try:
        import tensorflow.contrib.no_such_part
    except ImportError as error:
        assert "TensorFlow 2 has no tf.contrib" in str(error)
    else:
        raise AssertionError("no_such_part")


FLAGS = tf.flags.FLAGS
tf.flags.DEFINE_integer("status", 0, "How to end.")


def main(argv):
    assert argv == sys.argv[:1], argv
    for function in CHECKS:
        with tf.Graph().as_default():
            function()
    print(json.dumps([function.__name__ for function in CHECKS]))
    return FLAGS.status


if __name__ == "__main__":
    tf.app.run()
