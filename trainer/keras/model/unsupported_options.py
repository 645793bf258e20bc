"""The options of a Keras model that a TPUEstimator does not support, with reasons and remedies."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.errors import InvalidSetting


@dataclass(frozen=True)
class UnsupportedOption:
    """An option of a Keras model that prevents its conversion to a TPUEstimator."""

    reason: str
    remedy: str


UNSUPPORTED_OPTIONS: Mapping[str, UnsupportedOption] = {
    "not compiled": UnsupportedOption(
        "training and evaluation need an optimizer and a loss",
        "Call model.compile first",
    ),
    "run_eagerly": UnsupportedOption(
        "an estimator runs its steps as a graph, without Python code",
        "Compile the model without run_eagerly",
    ),
    "dynamic": UnsupportedOption(
        "a layer with dynamic=True runs Python code in each step, and an estimator runs its steps "
        "as a graph",
        "Write the layer in TensorFlow ops, and remove dynamic=True",
    ),
    "train_step": UnsupportedOption(
        "the model defines the whole training step, and an estimator must sum the gradients of all "
        "replicas inside the step",
        "Move the loss to compute_loss or add_loss, or write a model_fn for TPUEstimator",
    ),
    "test_step": UnsupportedOption(
        "an estimator evaluates the loss and the metrics of compile()",
        "Pass them to compile(), or write a model_fn for TPUEstimator",
    ),
    "predict_step": UnsupportedOption(
        "the predictions of an estimator are the outputs of the model",
        "Return the predictions from call(), or write a model_fn for TPUEstimator",
    ),
    "compute_metrics": UnsupportedOption(
        "the host computes the metrics, from the labels, the outputs and the sample weights",
        "Pass metrics= and weighted_metrics= to compile()",
    ),
    "add_metric": UnsupportedOption(
        "each replica of a TPU would update the metric of a layer separately",
        "Make the value an output of the model, and pass the metric to compile()",
    ),
    "LossScaleOptimizer": UnsupportedOption(
        "it decides on each replica separately whether to skip a step, and bfloat16 on a TPU needs "
        "no loss scale",
        "Compile with the inner optimizer, and use the policy mixed_bfloat16",
    ),
    "mixed_float16": UnsupportedOption(
        "a TPU computes in bfloat16 and not in float16",
        "Use the policy mixed_bfloat16",
    ),
    "stateful": UnsupportedOption(
        "a stateful recurrent layer keeps its state from batch to batch, and an estimator "
        "distributes batches over replicas",
        "Build the layer with stateful=False",
    ),
    "lookup table": UnsupportedOption(
        "lookup tables exist only on the host, and the model runs on the TPU",
        "Apply the layer to the Dataset in the input_fn, or set use_tpu=False and "
        "export_to_tpu=False",
    ),
    "amsgrad of a legacy optimizer": UnsupportedOption(
        "TensorFlow has no TPU implementation of its op",
        "Use tf_keras.optimizers.Adam(amsgrad=True), or use_tpu=False",
    ),
    "reduction='none'": UnsupportedOption(
        "the loss is a tensor, and a training step needs one number",
        "Use reduction='sum_over_batch_size' or 'sum'",
    ),
    "untracked variable": UnsupportedOption(
        "the model reads a variable that model.variables does not contain, so checkpoints would "
        "not contain it",
        "Make the variable an attribute of the layer that uses it, or create it by add_weight",
    ),
    "distribute strategy": UnsupportedOption(
        "the model was built in the scope of a tf.distribute strategy, which distributes it",
        "Build the model outside of strategy.scope()",
    ),
    "KERAS_BACKEND": UnsupportedOption(
        "Keras uses another backend than TensorFlow",
        "Set KERAS_BACKEND=tensorflow before the program imports keras",
    ),
    "no get_config": UnsupportedOption(
        "the model was built without eager execution; the conversion rebuilds it from the "
        "configurations of its layers, and a layer or the model has none that works",
        "Implement get_config and from_config in your layers, or in the subclassed model",
    ),
    "add_loss of a function": UnsupportedOption(
        "the model was built without eager execution, and the function reads variables of its "
        "graph",
        "Call add_loss in the call() of a layer",
    ),
    "tensor as hyperparameter": UnsupportedOption(
        "the tensor belongs to the graph of the program, and an estimator builds a graph of its "
        "own",
        "Use a number, a function, or one of tf.keras.optimizers.schedules",
    ),
    "optimizer in an optimizer": UnsupportedOption(
        "the outer optimizer changes gradients by ops of a TensorFlow 1 graph",
        "Compile with the inner optimizer; a CrossShardOptimizer that computes means is supported",
    ),
    "several optimizers": UnsupportedOption(
        "an estimator has one optimizer, which gets the gradients of all weights",
        "Compile with one, or write a model_fn for TPUEstimator",
    ),
    "another optimizer": UnsupportedOption(
        "it is neither a tf.keras.optimizers optimizer nor a tf.compat.v1.train optimizer",
        "Compile with one of these",
    ),
}


def unsupported_option_error(
    option: str, owner: str, cause: BaseException | None = None
) -> InvalidSetting:
    """Build the error that reports an unsupported option of a Keras model."""
    entry = UNSUPPORTED_OPTIONS[option]
    error = InvalidSetting(
        f"{owner} cannot become a TPUEstimator because of {option}: {entry.reason}. {entry.remedy}."
    )
    error.__cause__ = cause
    return error
