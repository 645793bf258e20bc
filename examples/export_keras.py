"""Train a Keras model that recognises the points of a disc, and export the model.

    $ python examples/export_keras.py /tmp/disc
    {serve} on CPU: [0, 0] inside, [1, 1] outside, [-1, 0.9] outside
    {serve, tpu} on CPU through XLA: [0, 0] inside, [1, 1] outside, [-1, 0.9] outside

The export calls the model in inference mode. The whole model runs on the TPU, in batches of 1 or 64
rows. The signature has the names of the model's input and output layers. A model of tf_keras is
exported in the same way.
"""

import argparse

import keras
import numpy as np

import tpuserve
from tpuserve import export, loader, tags

POINTS = np.array([[0, 0], [1, 1], [-1, 0.9]], np.float32)


def train_model():
    keras.utils.set_random_seed(1)
    point = keras.Input([2], name="point")
    hidden = keras.layers.Dense(32, activation="relu")(point)
    hidden = keras.layers.BatchNormalization()(hidden)
    inside = keras.layers.Dense(1, activation="sigmoid", name="inside")(hidden)
    model = keras.Model(point, inside)
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    points = np.random.uniform(-1, 1, [2048, 2])
    model.fit(points, np.hypot(*points.T) < 0.7, epochs=10, verbose=0)
    return model


def main(directory):
    batch_config = export.BatchConfig(
        num_batch_threads=1,
        max_batch_size=64,
        batch_timeout_micros=1000,
        allowed_batch_sizes=[1, 64],
    )
    version = export.export(train_model(), None, directory, batch_config=batch_config, warm_up=True)
    for tag_set in (tags.SERVE, tags.SERVE_TPU):
        model = loader.load(version, tag_set)
        inside = model.run("serving_default", {"point": POINTS})["inside"][:, 0] > 0.5
        results = [
            f"[{x:g}, {y:g}] {'inside' if is_inside else 'outside'}"
            for (x, y), is_inside in zip(POINTS, inside, strict=True)
        ]
        print(f"{str(model.choice).partition(' (')[0]}: {', '.join(results)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="the base path of the exported versions")
    with tpuserve.emulated_tpu(cores=1):
        main(parser.parse_args().directory)
