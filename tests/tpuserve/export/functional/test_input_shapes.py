import keras
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from tpuserve.export.functional.input_shapes import InputShape, apply_input_shapes

ONE = InputShape("", (None, 8, 8, 3))


def images() -> keras.Model:
    x = keras.Input([None, None, 3], name="image")
    return keras.Model(x, keras.layers.GlobalAveragePooling2D()(x))


def test_declared_shapes_are_kept() -> None:
    (spec,) = apply_input_shapes(images(), []).values()
    assert spec.shape.as_list() == [None, None, None, 3]


@pytest.mark.parametrize("name", ["", "image"])
def test_open_sizes_are_closed(name: str) -> None:
    specs = apply_input_shapes(images(), [InputShape(name, ONE.shape)])
    assert specs == {"image": tf.TensorSpec([None, 8, 8, 3], tf.float32)}


def test_shape_that_does_not_fit_is_refused() -> None:
    message = r"has the shape \[\?, \?, \?, 3\], and --input_shape gives \[\?, 8, 8, 4\]"
    with pytest.raises(InvalidSetting, match=message):
        apply_input_shapes(images(), [InputShape("", (None, 8, 8, 4))])


def test_unknown_names_and_dtypes_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="has no input 'x'; found image. Give"):
        apply_input_shapes(images(), [InputShape("x", ONE.shape)])
    with pytest.raises(InvalidSetting, match="names the dtype 'float3'"):
        apply_input_shapes(images(), [InputShape("", ONE.shape, "float3")])


def test_model_without_declared_inputs_takes_the_given_ones() -> None:
    class Model(keras.Model):
        pass

    with pytest.raises(InvalidSetting, match="does not declare its inputs. Give their shapes"):
        apply_input_shapes(Model(), [])
    specs = apply_input_shapes(Model(), [InputShape("ids", (None, 4), "int32")])
    assert specs == {"ids": tf.TensorSpec([None, 4], tf.int32)}
