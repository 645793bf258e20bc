"""Whether a Keras model has all that a TPUEstimator needs, and nothing that it cannot do."""

from typing import Any

from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error


def check_convertible(adapter: KerasAdapter, model: Any, *, use_tpu: bool) -> None:
    """Sees that a model can become an estimator.

    Raises:
      InvalidSetting: it has an option of `trainer.keras.model.unsupported_options`, which is named.
    """
    with eager_mode():
        for option, where in adapter.unsupported_options(model, use_tpu):
            raise unsupported_option_error(
                option, f"{adapter.name} model {model.name}{where and f' ({where})'}"
            )
