"""Builds the default serving_input_receiver_fn of a Keras model.

The function has one placeholder for each input that the model defines.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.exporting.input_receivers import ServingInputReceiver
from trainer.keras.model import tracing
from trainer.keras.model.adapter import find_adapter
from trainer.keras.model.tracing import eager_mode


def serving_input_receiver_fn(
    model: Any, *, to_tpu: bool = False
) -> Callable[[], ServingInputReceiver]:
    """Build a serving_input_receiver_fn with one placeholder for each input of a Keras model."""
    adapter = find_adapter(model)
    with contextlib.nullcontext() if tracing.is_graph_model(model) else eager_mode():
        specs = adapter.input_specs(model)
    if specs is None:
        raise InvalidSetting(
            f"{adapter.name} model {model.name} does not define its inputs, as subclassed models "
            f"do not. Give export_saved_model a serving_input_receiver_fn."
        )
    strings = [name for name, spec in specs.items() if spec.dtype == tf.string]
    if to_tpu and strings:
        raise InvalidSetting(
            f"{adapter.name} model {model.name} has string inputs ({', '.join(strings)}), and a "
            f"TPU computes only with numbers. Convert the strings to numbers in a "
            f"serving_input_receiver_fn, or convert the model with export_to_tpu=False."
        )

    def receive_inputs() -> ServingInputReceiver:
        placeholders = {
            name: tf.compat.v1.placeholder(spec.dtype, spec.shape, name=_to_op_name(name))
            for name, spec in specs.items()
        }
        return ServingInputReceiver(placeholders, placeholders)

    return receive_inputs


def _to_op_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._" else "_" for char in name)
