"""Keras applications with random weights, saved by `Model.export` of Keras 3."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.zoo.zoo_model import ZooModel, normal

_CLASSES = 10


def _application(name: str, build: Callable[..., Any], size: int, **options: Any) -> ZooModel:
    def write(directory: Path) -> None:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((size, size, 3), name="image")
        network = build(
            input_tensor=inputs,
            weights=None,
            classes=_CLASSES,
            classifier_activation=None,
            **options,
        )
        _normalize(network, np.random.default_rng(0).normal(size=(32, size, size, 3)))
        network.export(str(directory), verbose=False)

    return ZooModel(
        f"{name}, {size} x {size}", "Keras 3, `model.export`", write, normal("image", size, size, 3)
    )


def _normalize(network: Any, images: Any) -> None:
    """Let the random network compute like a trained network: outputs of 1 that differ.

    The averages of batch normalization become those of the images. Batch normalization in front of
    a ReLU multiplies rounding errors by up to 1.2 in each layer of a random network. An offset of 2
    keeps most units active, so that it does not.

    Source: G. Yang et al., "A Mean Field Theory of Batch Normalization", ICLR 2019.
    """
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
            if layer.center:
                layer.beta.assign(np.full(layer.beta.shape, 2.0))
    inputs = keras.tree.map_structure(lambda _: images, network.input)
    network(inputs, training=True)
    last = network.layers[-1]
    last.kernel.assign(last.kernel / np.std(network(inputs)))


MOBILE_NET = _application("MobileNetV2 0.35", keras.applications.MobileNetV2, 64, alpha=0.35)

ALL = (
    MOBILE_NET,
    _application("EfficientNetB0", keras.applications.EfficientNetB0, 32),
    _application("ResNet50", keras.applications.ResNet50, 32),
    _application("DenseNet121", keras.applications.DenseNet121, 32),
    _application("InceptionV3", keras.applications.InceptionV3, 75),
    _application("NASNetMobile", keras.applications.NASNetMobile, 32),
    _application("VGG16", keras.applications.VGG16, 32),
    _application("Xception", keras.applications.Xception, 71),
    _application("ConvNeXtTiny", keras.applications.ConvNeXtTiny, 32),
)
