"""Constants that programs import from tensorflow_estimator's modules model_fn and run_config."""

__all__ = ["AVERAGE_LOSS_METRIC_KEY", "LOSS_METRIC_KEY", "TaskType"]

# Keys of losses in the result of an Estimator's evaluate(). "loss" is the loss that model_fn
# returns, averaged over the batches.
LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"


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
