"""Small objects that programs import from modules of tensorflow_estimator."""

from typing import Any, TypeVar

__all__ = [
    "AVERAGE_LOSS_METRIC_KEY",
    "LOSS_METRIC_KEY",
    "NO_GAUGE",
    "TaskType",
    "estimator_export",
]

# Keys of losses in the result of an Estimator's evaluate(). "loss" is the loss that model_fn
# returns, averaged over the batches.
LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"

T = TypeVar("T")


class TaskType:
    """The types of the tasks in the environment variable TF_CONFIG.

    Attributes:
      MASTER: the name of the chief in clusters of the first versions of TensorFlow 1.
    """

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"


class estimator_export:
    """A decorator that leaves a class or function of tensorflow_estimator as it is.

    The names of tf.estimator stand in `trainer.compat.source.estimator_names`.
    """

    def __init__(self, *names: str, **options: Any) -> None:
        """Take the names under which tensorflow_estimator exported the object."""

    def __call__(self, value: T) -> T:
        """Return the decorated class or function."""
        return value

    def export_constant(self, module: str, name: str) -> None:
        """Do nothing."""


class _NoGauge:
    """Stands for the gauge that counts the uses of canned estimators, and counts nothing."""

    def get_cell(self, *labels: str) -> "_NoGauge":
        return self

    def set(self, value: str) -> None:
        return None


NO_GAUGE = _NoGauge()
