"""Keras's private names that tpuserve uses exist, and a missing one is reported."""

import importlib
import operator
from typing import Any

import pytest

from tpuserve import keras_internals
from tpuserve.errors import UnsupportedVersion
from tpuserve.keras_internals import KERAS_3, TF_KERAS


@pytest.mark.parametrize("package", [KERAS_3, TF_KERAS])
def test_installed_keras_has_every_private_name(package: str) -> None:
    keras = importlib.import_module(package)
    for kind, attributes in keras_internals._OBJECT_ATTRIBUTES[package].items():
        # With a name, Keras does not count the object, so that names in other tests stay the same.
        value = operator.attrgetter(kind)(keras)(name="probe")
        assert [name for name in attributes if not hasattr(value, name)] == []


@pytest.mark.parametrize("package", [KERAS_3, TF_KERAS])
def test_missing_attribute_is_reported_with_the_version(package: str) -> None:
    keras = importlib.import_module(package)
    message = rf"^{package} {keras.__version__} lacks .* tpuserve uses: Layer\._gone\. Install a"
    with pytest.raises(UnsupportedVersion, match=message):
        keras_internals.get_private_attribute(keras.layers.Layer, "_gone")


@pytest.mark.parametrize("package", [KERAS_3, TF_KERAS])
def test_layer_that_does_not_call_the_constructor_of_keras_is_left_to_keras(package: str) -> None:
    layer_class: Any = importlib.import_module(package).layers.Layer
    layer = type("Own", (layer_class,), {"__init__": lambda self: None})()
    assert keras_internals.takes_training(layer)
