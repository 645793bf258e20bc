"""Uses names at the paths that they had in tensorflow_estimator, with tf.compat.v2 as tf."""

import json
import os

import tensorflow.compat.v2 as tf
from tensorflow_estimator.python.estimator import keras_lib, model_fn, run_config
from tensorflow_estimator.python.estimator.estimator import EstimatorV2
from tensorflow_estimator.python.estimator.export import export_lib
from tensorflow_estimator.python.estimator.tpu import tpu_estimator


def input_fn():
    return {"x": tf.zeros([4, 2])}, tf.zeros([4])


os.environ["TF_CONFIG"] = json.dumps(
    {
        "cluster": {run_config.TaskType.CHIEF: ["a:1"], run_config.TaskType.PS: ["b:1"]},
        "task": {"type": run_config.TaskType.PS, "index": 0},
    }
)
assert run_config.RunConfig().task_type == run_config.TaskType.PS
assert run_config.TaskType.EVALUATOR == "evaluator"

assert (model_fn.LOSS_METRIC_KEY, model_fn.AVERAGE_LOSS_METRIC_KEY) == ("loss", "average_loss")

with tf.Graph().as_default():
    like = {"x": tf.zeros([4, 2])}
    raw = export_lib.build_raw_supervised_input_receiver_fn(like, tf.zeros([4]))()
    from_input_fn = export_lib.build_supervised_input_receiver_fn_from_input_fn(input_fn)()
assert isinstance(raw, export_lib.SupervisedInputReceiver)
assert list(from_input_fn.receiver_tensors) == list(raw.receiver_tensors) == ["x", "label"]
assert export_lib.get_timestamped_export_dir("/m").startswith(b"/m/")

assert tpu_estimator.AdamParameters(0.1).beta1 == 0.9
assert tpu_estimator.AdagradParameters(0.1).initial_accumulator == 0.1
assert tpu_estimator.StochasticGradientDescentParameters(0.1).learning_rate == 0.1

assert issubclass(keras_lib.FormattedKeyError, KeyError)
assert str(keras_lib.FormattedKeyError("a\nb")) == "a\nb"

v1 = tf.compat.v1.estimator
assert EstimatorV2 is v1.Estimator
assert v1.tpu.RunConfig is v1.RunConfig is tf.estimator.RunConfig is run_config.RunConfig
print("all names are there")
