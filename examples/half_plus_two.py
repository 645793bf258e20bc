"""Train y = x / 2 + 2 with TPUEstimator, and export the model for CPU and TPU.

    $ python examples/half_plus_two.py /tmp/half_plus_two
    $ tpuserve serve --model_name=half_plus_two --model_base_path=/tmp/half_plus_two/export
    $ curl -d '{"instances": [[1.0], [2.0], [5.0]]}' \
        http://localhost:8501/v1/models/half_plus_two:predict
    {
        "predictions": [[2.5], [3.0], [4.5]
        ]
    }

The training finds w = 0.5 and b = 2.
"""

import argparse

import tensorflow.compat.v1 as tf

import trainer


def model_fn(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    y = features["x"] * w + b
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.losses.mean_squared_error(labels, y)
    optimizer = trainer.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.3))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params):
    x = tf.reshape(tf.linspace(-2.0, 2.0, params["batch_size"]), [-1, 1])
    return tf.data.Dataset.from_tensors(({"x": x}, x / 2 + 2)).repeat()


def serving_input_receiver_fn():
    x = tf.placeholder(tf.float32, [None, 1], name="x")
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def main(directory):
    config = trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=100))
    estimator = trainer.TPUEstimator(
        model_fn, f"{directory}/model", config, use_tpu=False, train_batch_size=32
    )
    estimator.train(input_fn, max_steps=500)
    print(estimator.export_saved_model(f"{directory}/export", serving_input_receiver_fn).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="the directory of checkpoints and exports")
    main(parser.parse_args().directory)
