"""What the functions that take an estimator ask of it."""

from typing import Any

from tpuserve.errors import InvalidType
from trainer.estimator import Estimator


def demand(estimator: Any) -> None:
    """Refuses what is no estimator.

    Raises:
      InvalidType: shows what it is.
    """
    if not isinstance(estimator, Estimator):
        raise InvalidType(
            f"estimator must have type trainer.Estimator or trainer.TPUEstimator; found "
            f"{type(estimator).__name__}."
        )


def evaluates_on_tpu(estimator: Any) -> bool:
    """Whether training and evaluation want the same TPU."""
    return bool(getattr(estimator, "_use_tpu", False) and getattr(estimator, "_eval_on_tpu", True))
