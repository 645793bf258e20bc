"""A TensorFlow 1 program that converts a Keras model to an Estimator.

It follows a question that users asked then: how does an Estimator that was made of a Keras model
become a TPUEstimator? On the CPU the program calls tf.keras.estimator.model_to_estimator, and on a
TPU trainer.model_to_tpu_estimator, which is the answer.
"""

import json
import os

import numpy as np
import tensorflow as tf

import trainer

flags = tf.flags
flags.DEFINE_bool("use_tpu", False, "Whether to train on a TPU.")
flags.DEFINE_string("model_dir", None, "Where checkpoints and exports go.")
flags.DEFINE_list("optimizers", ["sgd", "adam", "native"], "The optimizers to train with.")
FLAGS = flags.FLAGS

STEPS, BATCH = 5, 8
OPTIMIZERS = {
    "sgd": lambda: tf.keras.optimizers.SGD(lr=0.05, momentum=0.9, decay=0.01),
    "adam": lambda: tf.keras.optimizers.Adam(lr=0.02, epsilon=1e-3),
    "native": lambda: tf.train.AdamOptimizer(0.02, epsilon=1e-3),
}

random = np.random.RandomState(0)
IMAGES = random.rand(STEPS * BATCH, 8, 8, 1).astype(np.float32)
LABELS = np.eye(4, dtype=np.float32)[random.randint(0, 4, STEPS * BATCH)]


def make_model(optimizer):
    layers = tf.keras.layers
    my_keras_model = tf.keras.models.Sequential(
        [
            layers.Conv2D(4, 3, activation="tanh", input_shape=(8, 8, 1), name="conv"),
            layers.Lambda(lambda x: tf.identity(x) * tf.keras.backend.constant(2.0)),
            layers.AveragePooling2D(),
            layers.Flatten(),
            layers.Dense(4, activation="softmax", kernel_regularizer="l2", name="digit"),
        ]
    )
    my_keras_model.compile(
        optimizer=optimizer, loss="categorical_crossentropy", metrics=["accuracy"]
    )
    return my_keras_model


def input_fn(params=None):
    batch_size = params["batch_size"] if params else BATCH
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    return dataset.batch(batch_size, drop_remainder=True)


def make_estimator(model, model_dir):
    if not FLAGS.use_tpu:
        config = tf.estimator.RunConfig(save_summary_steps=1)
        return tf.keras.estimator.model_to_estimator(
            keras_model=model, model_dir=model_dir, config=config
        )
    config = tf.contrib.tpu.RunConfig(
        save_summary_steps=1,
        tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=1),
    )
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), BATCH)
    return trainer.model_to_tpu_estimator(
        keras_model=model, model_dir=model_dir, config=config, **sizes
    )


def batches():
    return [(IMAGES[at : at + BATCH], LABELS[at : at + BATCH]) for at in range(0, 40, BATCH)]


def values(metrics):
    return {name: float(number) for name, number in metrics.items()}


def run(name):
    model_dir = os.path.join(FLAGS.model_dir, name)
    model = make_model(OPTIMIZERS[name]())
    model.train_on_batch(*batches()[-1])
    start = model.get_weights()
    estimator = make_estimator(model, model_dir)
    estimator.train(input_fn, steps=STEPS)
    same = all(np.array_equal(*pair) for pair in zip(start, model.get_weights(), strict=True))
    # The estimator has left the model unchanged: train it in its own session on the same batches.
    fitted = [float(model.train_on_batch(*batch)[0]) for batch in batches()]
    model.save_weights(os.path.join(FLAGS.model_dir, "%s.h5" % name))
    weights_path = os.path.join(FLAGS.model_dir, "%s.npz" % name)
    np.savez(weights_path, *model.get_weights())
    expected = dict(
        zip(model.metrics_names, model.evaluate(IMAGES, LABELS, verbose=0), strict=True)
    )
    metrics = estimator.evaluate(input_fn)
    predicted = next(estimator.predict(input_fn))["digit"]
    model.set_weights(start)
    returned = trainer.to_keras(estimator)
    back = np.allclose(returned.predict(IMAGES[:1])[0], predicted, atol=1e-5)
    exported = estimator.export_saved_model(os.path.join(FLAGS.model_dir, "export", name))
    if not FLAGS.use_tpu:
        # Train both for one more step, to compare the optimizers' states.
        estimator.train(input_fn, steps=1)
        fitted.append(float(model.train_on_batch(*batches()[0])[0]))
    return {
        "untouched": same,
        "fitted": fitted,
        "expected": values(expected),
        "found": values(metrics),
        "returned": returned is model and bool(back),
        "export": exported.decode(),
        "kept": weights_path,
    }


def main(_):
    print(json.dumps({name: run(name) for name in FLAGS.optimizers}), flush=True)


if __name__ == "__main__":
    tf.app.run()
