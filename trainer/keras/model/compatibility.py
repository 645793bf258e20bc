"""Whether a Keras model has all that a TPUEstimator needs, and nothing that it cannot do."""

from typing import Any

from trainer.keras.model.adapter import Family
from trainer.keras.model.tracing import eagerly
from trainer.keras.model.unsupported_options import refuse


def check(family: Family, model: Any, *, use_tpu: bool) -> None:
    """Sees that a model can become an estimator.

    Raises:
      InvalidSetting: it has an option of `trainer.keras.model.unsupported_options`, which is named.
    """
    with eagerly():
        for option, where in family.refusals(model, use_tpu):
            raise refuse(option, f"{family.name} model {model.name}{where and f' ({where})'}")
