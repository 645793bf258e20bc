"""A TensorFlow 1 program that imports trainer.compat itself, and runs with `python`."""

import trainer.compat

import json
import sys

import tensorflow as tf

import first_version_part

Resolver = tf.distribute.cluster_resolver.TPUClusterResolver


def first_version():
    with tf.Session() as session:
        return session.run(tf.to_float(1))


print(
    json.dumps(
        {
            "eager": tf.executing_eagerly(),
            "session": hasattr(tf, "Session"),
            "inputs": hasattr(tf.estimator, "inputs"),
            "tpu": tf.contrib.tpu.TPUEstimator is tf.compat.v1.estimator.tpu.TPUEstimator,
            "own": tf.estimator.Estimator.__module__,
            "same": tf is first_version_part.tf,
            "masters": [Resolver().master(), Resolver("").master()],
            "real": tf is sys.modules["tensorflow"],
        }
    )
)
