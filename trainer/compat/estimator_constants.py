"""Constants that programs import from tensorflow_estimator's modules model_fn and run_config."""

__all__ = ["AVERAGE_LOSS_METRIC_KEY", "LOSS_METRIC_KEY", "TaskType"]

# Keys of losses in the result of an Estimator's evaluate(). "loss" is the loss that model_fn
# returns, averaged over the batches. "average_loss" is the mean over all examples; the models that
# are part of tf.estimator, such as DNNClassifier, report it.
LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"


class TaskType:
    """The types of the tasks in the environment variable TF_CONFIG.

    Attributes:
      MASTER: the name of the chief in clusters of the first versions of TensorFlow 1.
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
