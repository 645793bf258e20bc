"""The door of an exported Keras model: its own inputs."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.exporting.input_receivers import ServingInputReceiver
from trainer.keras.model import tf2_engine
from trainer.keras.model.adapter import find_adapter
from trainer.keras.model.tracing import eager_mode


def serving_input_receiver_fn(
    model: Any, *, to_tpu: bool = False
) -> Callable[[], ServingInputReceiver]:
    """A serving_input_receiver_fn whose clients send the inputs of a Keras model, by name.

    Args:
      model: a Keras model that knows its inputs: a functional one, or a Sequential that is built.
      to_tpu: whether a TPU is to take them.

    Raises:
      InvalidSetting: it does not know them, or a TPU does not take one.
      InvalidType: it is no Keras model.
    """
    adapter = find_adapter(model)
    with contextlib.nullcontext() if tf2_engine.is_graph_model(model) else eager_mode():
        specs = adapter.input_specs(model)
    if specs is None:
        raise InvalidSetting(
            f"{adapter.name} model {model.name} does not say what its inputs are, as no subclassed "
            f"model does. Give export_saved_model a serving_input_receiver_fn."
        )
    strings = [name for name, each in specs.items() if each.dtype == tf.string]
    if to_tpu and strings:
        raise InvalidSetting(
            f"{adapter.name} model {model.name} takes strings as its input {', '.join(strings)}, "
            f"and a TPU computes with numbers only. Make numbers of them in a "
            f"serving_input_receiver_fn, in front of a model of numbers, or convert with "
            f"export_to_tpu=False."
        )

    def receive() -> ServingInputReceiver:
        placeholders = {
            name: tf.compat.v1.placeholder(each.dtype, each.shape, name=_op_name(name))
            for name, each in specs.items()
        }
        return ServingInputReceiver(placeholders, placeholders)

    return receive


def _op_name(name: str) -> str:
    return "".join(each if each.isalnum() or each in "._" else "_" for each in name)
