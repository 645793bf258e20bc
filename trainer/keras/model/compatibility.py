"""Checks that a Keras model can be converted to a TPUEstimator."""

from typing import Any

from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error


def check_convertible(adapter: KerasAdapter, model: Any, *, use_tpu: bool) -> None:
    """Check that a model is compiled and has no unsupported option."""
    with eager_mode():
        for option, owner in adapter.unsupported_options(model, use_tpu):
            label = f"{adapter.name} model {model.name}"
            raise unsupported_option_error(option, f"{label} ({owner})" if owner else label)
