"""What a Keras model can have that a TPUEstimator cannot: one table, by the option's name."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.errors import InvalidSetting


@dataclass(frozen=True)
class UnsupportedOption:
    """An option that is refused.

    Attributes:
      reason: what stands in the way.
      remedy: what to do.
    """

    reason: str
    remedy: str


UNSUPPORTED_OPTIONS: Mapping[str, UnsupportedOption] = {
    "not compiled": UnsupportedOption(
        "there is no optimizer and no loss to train and to evaluate with",
        "Call model.compile first",
    ),
    "run_eagerly": UnsupportedOption(
        "an estimator runs a graph, and no Python in its steps",
        "Compile the model without it",
    ),
    "dynamic": UnsupportedOption(
        "a layer of dynamic=True runs Python in each step, and an estimator runs a graph",
        "Write the layer in TensorFlow ops, and leave dynamic out",
    ),
    "train_step": UnsupportedOption(
        "it says itself how a step is made, and gradients must be summed in the midst of it",
        "Put the loss into compute_loss or add_loss, or write a model_fn for TPUEstimator",
    ),
    "test_step": UnsupportedOption(
        "an evaluation is made of the model's loss and metrics",
        "Put them into compile(), or write a model_fn for TPUEstimator",
    ),
    "predict_step": UnsupportedOption(
        "predictions are what the model returns",
        "Let call() return them, or write a model_fn for TPUEstimator",
    ),
    "compute_metrics": UnsupportedOption(
        "metrics are counted on the host, which gets the labels, the outputs and the weights",
        "Give metrics= and weighted_metrics= to compile()",
    ),
    "add_metric": UnsupportedOption(
        "a metric inside of a layer is counted on the TPU, by each replica for itself",
        "Give the metric to compile(), and the value as an output of the model",
    ),
    "LossScaleOptimizer": UnsupportedOption(
        "it skips steps by what one replica finds, and a TPU's bfloat16 needs no loss scale",
        "Compile with the inner optimizer, and use the policy mixed_bfloat16",
    ),
    "mixed_float16": UnsupportedOption(
        "a TPU computes in bfloat16, not in float16",
        "Use the policy mixed_bfloat16",
    ),
    "stateful": UnsupportedOption(
        "a stateful recurrent layer carries its state from batch to batch, and batches are "
        "spread over replicas",
        "Build the layer with stateful=False",
    ),
    "lookup table": UnsupportedOption(
        "a table is looked up on the host, and the model runs on the TPU",
        "Apply the layer in the input_fn, to the Dataset",
    ),
    "amsgrad of a legacy optimizer": UnsupportedOption(
        "its op has no form on a TPU",
        "Use tf_keras.optimizers.Adam(amsgrad=True), or use_tpu=False",
    ),
    "reduction='none'": UnsupportedOption(
        "the loss is not one number, and a step needs one",
        "Use reduction='sum_over_batch_size' or 'sum'",
    ),
    "untracked variable": UnsupportedOption(
        "the model reads a variable that is not among model.variables, so no checkpoint would "
        "have it",
        "Make it an attribute of the layer that uses it, or by its add_weight",
    ),
    "distribute strategy": UnsupportedOption(
        "the model was made in a tf.distribute strategy, which spreads it itself",
        "Make it outside of strategy.scope()",
    ),
    "KERAS_BACKEND": UnsupportedOption(
        "Keras runs on another backend than TensorFlow",
        "Set KERAS_BACKEND=tensorflow before keras is imported",
    ),
    "no get_config": UnsupportedOption(
        "the model was made without eager execution, and is made again from the configuration of "
        "its layers, which cannot be",
        "Give your layers, or a subclassed model, a get_config and a from_config",
    ),
    "add_loss of a function": UnsupportedOption(
        "the function was added to a model that was made without eager execution, and reads "
        "variables of its graph",
        "Call add_loss in the call() of a layer",
    ),
    "tensor as hyperparameter": UnsupportedOption(
        "the tensor is computed in the graph of the program, and an estimator has another one",
        "Give a number, a function, or one of tf.keras.optimizers.schedules",
    ),
    "optimizer in an optimizer": UnsupportedOption(
        "what the outer one does to gradients is made for a graph of TensorFlow 1",
        "Compile with the inner one; CrossShardOptimizer with its mean may stay",
    ),
    "another optimizer": UnsupportedOption(
        "it is neither one of tf.keras.optimizers nor one of tf.compat.v1.train",
        "Compile with one of these",
    ),
}


def unsupported_option_error(
    option: str, where: str, error: BaseException | None = None
) -> InvalidSetting:
    """The error to raise for an option of the table.

    Args:
      option: a key of `UNSUPPORTED_OPTIONS`.
      where: the model, and the layer, that has it.
      error: what it follows from, if anything.
    """
    refusal = UNSUPPORTED_OPTIONS[option]
    found = InvalidSetting(
        f"{where} cannot become a TPUEstimator because of {option}: {refusal.reason}. "
        f"{refusal.remedy}."
    )
    found.__cause__ = error
    return found
