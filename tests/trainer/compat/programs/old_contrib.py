"""Uses parts of tf.contrib that programs with an input of their own import.

The argument is an empty directory.
"""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import distribute as contrib_distribute
from tensorflow.contrib.distribute import MirroredStrategy
from tensorflow.contrib.framework.python.ops import add_arg_scope, arg_scope, audio_ops, variables
from tensorflow.contrib.framework.python.ops.arg_scope import has_arg_scope
from tensorflow.contrib.framework.python.ops.variables import get_or_create_global_step
from tensorflow.contrib.slim.python.slim.data import dataset_data_provider
from tensorflow.python.framework import ops

slim = tf.contrib.slim
directory = sys.argv[1]
records = directory + "/records"


def write_records():
    with tf.python_io.TFRecordWriter(records) as writer:
        for number in range(5):
            example = tf.train.Example()
            example.features.feature["number"].int64_list.value.append(number)
            writer.write(example.SerializeToString())


def run_with_queues(tensors):
    """Return the values of tensors until the input ends."""
    values = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            while True:
                values.append(session.run(tensors))
        except tf.errors.OutOfRangeError:
            pass
        coordinator.request_stop()
        coordinator.join(threads)
    return values


def read_numbers():
    decoder = slim.tfexample_decoder.TFExampleDecoder(
        {"number": tf.FixedLenFeature([], tf.int64)},
        {"number": slim.tfexample_decoder.Tensor("number")},
    )
    dataset = slim.dataset.Dataset(
        records, tf.TFRecordReader, decoder, 5, {"number": "a number"}, num_classes=5
    )
    assert dataset.num_classes == 5
    assert slim.dataset_data_provider is dataset_data_provider
    with tf.Graph().as_default():
        provider = dataset_data_provider.DatasetDataProvider(
            dataset, num_readers=2, shuffle=True, num_epochs=1, seed=1
        )
        [number] = provider.get(["number"])
        batch = tf.train.batch([number], 5)
        queue = slim.prefetch_queue.prefetch_queue([batch], capacity=2)
        [numbers] = run_with_queues(queue.dequeue())
    with tf.Graph().as_default():
        _, record = slim.parallel_reader.single_pass_read(records, tf.TFRecordReader)
        in_order = run_with_queues(tf.parse_single_example(record, decoder._keys_to_features))
    return sorted(numbers.tolist()), [int(element["number"]) for element in in_order]


def count_records():
    """Return the number of records that a ParallelReader reads in two passes."""
    with tf.Graph().as_default():
        paths = tf.train.string_input_producer([records], num_epochs=2)
        common_queue = tf.FIFOQueue(8, [tf.string, tf.string], [[], []])
        reader = slim.parallel_reader.ParallelReader(
            tf.TFRecordReader, common_queue, num_readers=2
        )
        keys, _ = reader.read_up_to(paths, 3)
        assert (reader.num_readers, reader.common_queue) == (2, common_queue)
        counts = reader.num_records_produced(), reader.num_work_units_completed()
        return sum(map(len, run_with_queues(keys))), [count.dtype.name for count in counts]


@add_arg_scope
def scaled(x, scale=1):
    return x * scale


class Celsius:
    def __init__(self, degrees):
        self.degrees = degrees


def train(elements, max_steps):
    """Train to a step; `elements` gets the numbers that the steps have read."""

    def model_fn(features, labels, mode):
        step = tf.train.get_or_create_global_step().assign_add(1)
        with tf.control_dependencies([tf.py_func(elements.append, [features], [])]):
            return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=tf.identity(step))

    config = tf.estimator.RunConfig(directory + "/model")
    estimator = tf.estimator.Estimator(model_fn, config=config)
    hook = tf.contrib.data.CheckpointInputPipelineHook(estimator)
    estimator.train(lambda: tf.data.Dataset.range(10), hooks=[hook], max_steps=max_steps)


write_records()
print(*read_numbers())
print(*count_records())
with arg_scope([scaled], scale=3):
    print(scaled(2), has_arg_scope(scaled), hasattr(audio_ops, "decode_wav"))
assert variables.get_or_create_global_step is get_or_create_global_step
ops.register_tensor_conversion_function(
    Celsius, lambda value, dtype=None, name=None, as_ref=False: tf.constant(value.degrees)
)
print(tf.Session().run(ops.convert_to_tensor(Celsius(21.5))))
elements = []
train(elements, 2)
train(elements, 5)
print(*np.asarray(elements))
print(isinstance(None, MirroredStrategy))
print(contrib_distribute.MirroredStrategy(num_gpus=2).num_replicas_in_sync)
try:
    contrib_distribute.TPUStrategy()
except ValueError as error:
    print(error)
