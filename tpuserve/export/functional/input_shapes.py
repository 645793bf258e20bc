"""Replaces the input shapes that a Keras model declares by shapes that the user sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from tpuserve.export.functional.keras_model import KerasModel

_DEFAULT_NAME = "inputs"


@dataclass(frozen=True)
class InputShape:
    """The shape that the user sets for one input of a Keras model.

    Attributes:
      shape: the size of each dimension, the batch first; None for an unknown size.
      dtype: TensorFlow's name of the dtype; "" for the dtype that the model declares, or float32.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str = ""


def apply_input_shapes(model: Any, shapes: Sequence[InputShape]) -> dict[str, Any]:
    """Return the inputs of a Keras model, with shapes from the user in place of its own.

    Args:
      shapes: the shapes from the user. They replace shapes that the model declares. If the model
        declares no inputs, `shapes` must describe all of them.

    Returns:
      Name of the input → tf.TensorSpec.

    Raises:
      InvalidSetting: `shapes` names an unknown input or dtype, or has a shape that the model does
        not accept; or the model declares no inputs and `shapes` is empty.
    """
    title = f"model {model.name!r}"
    declared = KerasModel(model, title).default_specs()
    if declared is None:
        if not shapes:
            raise InvalidSetting(
                f"{title} does not declare its inputs. Give their shapes, such as "
                f"--input_shape x=?,224,224,3 or --input_shape ids=?,128:int32."
            )
        return {shape.name or _DEFAULT_NAME: _to_spec(shape, tf.float32) for shape in shapes}
    specs = dict(declared)
    for shape in shapes:
        name = _find_name(shape, specs, title)
        spec = _to_spec(shape, specs[name].dtype)
        if not spec.shape.is_compatible_with(specs[name].shape):
            raise InvalidSetting(
                f"input {name!r} of {title} has the shape {_format(specs[name].shape)}, and "
                f"--input_shape gives {_format(spec.shape)}. Give a shape that fits, with the "
                f"batch first."
            )
        specs[name] = spec
    return specs


def _find_name(shape: InputShape, specs: Mapping[str, Any], title: str) -> str:
    if not shape.name and len(specs) == 1:
        return next(iter(specs))
    if shape.name not in specs:
        problem = f"has no input {shape.name!r}" if shape.name else "has several inputs"
        raise InvalidSetting(
            f"{title} {problem}; found {', '.join(sorted(specs))}. Give --input_shape NAME=SIZES."
        )
    return shape.name


def _to_spec(shape: InputShape, dtype: Any) -> Any:
    try:
        return tf.TensorSpec(shape.shape, tf.as_dtype(shape.dtype) if shape.dtype else dtype)
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"--input_shape names the dtype {shape.dtype!r}. Give one such as float32 or int32."
        ) from error


def _format(shape: Any) -> str:
    if shape.rank is None:
        return "of any rank"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
