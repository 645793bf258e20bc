"""Checks that an argument of a function, such as add_metrics, is an estimator."""

from typing import Any

from tpuserve.errors import InvalidType
from trainer.estimator.estimator import Estimator


def check_is_estimator(estimator: Any) -> None:
    """Check that an argument is an estimator."""
    if not isinstance(estimator, Estimator):
        raise InvalidType(
            f"estimator must have type trainer.Estimator or trainer.TPUEstimator; found "
            f"{type(estimator).__name__}."
        )
