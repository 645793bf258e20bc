"""Train a compiled Keras model as a TPUEstimator, and predict with Keras.

    $ TPUSERVE_EMULATED_TPU=4 python examples/train_keras.py /tmp/keras
    as a TPUEstimator: mae 0.0000 after 300 steps
    back in Keras: y(3) = 5.50

The estimator uses the optimizer, the loss and the metrics of the model. The gradients are averaged
over the 4 emulated cores. On a machine with a TPU, the same command without the environment
variable trains on the TPU.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

import trainer


def make_compiled_model():
    model = keras.Sequential([keras.Input([1], name="x"), keras.layers.Dense(1, name="y")])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss="mse", metrics=["mae"])
    return model


def input_fn(params):
    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
    rows = tf.data.Dataset.from_tensor_slices((x, 1.5 * x + 1)).repeat()
    return rows.batch(params["batch_size"], drop_remainder=True)


def main(directory):
    model = make_compiled_model()
    estimator = trainer.model_to_tpu_estimator(
        model, model_dir=directory, train_batch_size=16, eval_batch_size=16
    )
    estimator.train(input_fn, max_steps=300)
    metrics = estimator.evaluate(input_fn, steps=2)
    print(f"as a TPUEstimator: mae {metrics['mae']:.4f} after {metrics['global_step']} steps")
    trainer.to_keras(estimator)
    prediction = model.predict(np.array([[3.0]], np.float32), verbose=0)
    print(f"back in Keras: y(3) = {prediction.item():.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="the directory of the checkpoints")
    main(parser.parse_args().directory)
