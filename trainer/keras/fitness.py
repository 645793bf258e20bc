"""Whether a Keras model has all that a TPUEstimator needs, and nothing that it cannot do."""

from typing import Any

from trainer.keras.family import Family
from trainer.keras.refusals import refuse
from trainer.keras.tracing import eagerly


def check(family: Family, model: Any, *, use_tpu: bool) -> None:
    """Sees that a model can become an estimator.

    Raises:
      InvalidSetting: it has an option of `trainer.keras.refusals`, which is named.
    """
    with eagerly():
        for option, where in family.refusals(model, use_tpu):
            raise refuse(option, f"{family.name} model {model.name}{where and f' ({where})'}")
