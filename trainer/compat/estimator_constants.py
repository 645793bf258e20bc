"""Constants of the modules inside tensorflow_estimator that programs use by their full paths."""

__all__ = ["AVERAGE_LOSS_METRIC_KEY", "LOSS_METRIC_KEY", "TaskType"]

# The names of the loss in the results of evaluate(): "loss" is the model_fn's loss, averaged over
# the batches; "average_loss", which tf.estimator's own models report, is the mean over all rows.
LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"


class TaskType:
    """The types of the tasks in TF_CONFIG.

    Attributes:
      MASTER: the chief, in clusters of the first versions of TensorFlow 1.
      PS: a parameter server, which holds variables.
      WORKER: a process that trains, and saves no checkpoints.
      CHIEF: the process that trains and saves checkpoints.
      EVALUATOR: the process that evaluates, outside of the cluster.
    """

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"
