"""What the functions that take an estimator ask of it."""

from typing import Any

from tpuserve.errors import InvalidType
from trainer.estimator.estimator import Estimator


def check_is_estimator(estimator: Any) -> None:
    """Refuses what is no estimator.

    Raises:
      InvalidType: shows what it is.
    """
    if not isinstance(estimator, Estimator):
        raise InvalidType(
            f"estimator must have type trainer.Estimator or trainer.TPUEstimator; found "
            f"{type(estimator).__name__}."
        )
