"""Converts a compiled Keras model to a TPUEstimator.

One training step of the estimator is one step of model.fit with the global batch. The model, its
losses, its regularizers and its optimizer run unchanged.

- Batch normalization normalizes over the batch of one replica, unless the layer has
  synchronized=True. The moving averages are means over the replicas.
- Random layers draw other random numbers than in model.fit.
- Gradients of embeddings are dense. In model.fit they are sparse, and some optimizers, such as Adam
  of Keras 3, treat sparse gradients differently.
- A loss can divide by a number that differs between replicas, such as the number of unmasked
  examples. Then the estimator's loss is the mean of the replicas' losses, and not exactly the loss
  of the global batch.
"""

import logging
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.checkpoints import checkpoints, warm_start
from trainer.config.run_config import RunConfig
from trainer.keras.estimator import KerasTPUEstimator
from trainer.keras.model import first_checkpoint, tracing, variables
from trainer.keras.model.adapter import KerasAdapter, find_adapter, load_model
from trainer.keras.model.converted_model import ConvertedModel, NameMaps
from trainer.keras.model.options import check_convertible
from trainer.keras.model.tracing import eager_mode

logger = logging.getLogger("tensorflow.trainer")


def model_to_tpu_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    model_dir: str | None = None,
    config: RunConfig | None = None,
    *,
    use_tpu: bool = True,
    train_batch_size: int | None = None,
    eval_batch_size: int | None = None,
    predict_batch_size: int | None = None,
    params: Any = None,
    class_weight: Mapping[int, float] | None = None,
    metric_names_map: Mapping[str, str] | None = None,
    export_outputs: Mapping[str, Any] | None = None,
    **options: Any,
) -> KerasTPUEstimator:
    """Convert a compiled Keras model to a TPUEstimator that starts from the model's weights.

    Checkpoints contain the weights, the optimizer's state and the optimizer's step count. If
    model_dir has a checkpoint, the estimator continues from the newest one. Otherwise this function
    writes a checkpoint with the model's own values, unless the model is not built yet. With the
    option warm_start_from, the values that it selects replace the model's own.

    An input_fn may return a dataset that was made for model.fit, with batches of any size: the
    estimator rebatches it to the batch size. Types that the infeed does not support, such as int64
    labels, are transferred in 32 bits and converted back.

    Example:
      model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
      estimator = model_to_tpu_estimator(model, model_dir="/tmp/digits", train_batch_size=64)
      estimator.train(input_fn, max_steps=1000)
      estimator.export_saved_model("/tmp/export")
      to_keras(estimator).fit(...)

    Args:
      keras_model: a compiled model of Keras 3 or of tf_keras.
      keras_model_path: the path of a saved model, instead of keras_model.
      custom_objects: name → class or function that is needed to load the file or to clone the
        model.
      model_dir: the directory of checkpoints and summaries. Default: config.model_dir, else a new
        temporary directory.
      config: the run configuration; None for the defaults.
      use_tpu: whether to run on a TPU; False runs on the CPU.
      train_batch_size: global batch size of training, the number of examples of all replicas; an
        input_fn receives the batch size as params["batch_size"].
      eval_batch_size: global batch size of evaluation.
      predict_batch_size: global batch size of prediction.
      params: hyperparameters for the input_fn.
      class_weight: class → weight of the examples of this class in training, as in model.fit.
      metric_names_map: Keras metric name → name in the result of evaluate(). The map must name
        all metrics and none of the losses.
      export_outputs: output name → class, for example tf.estimator.export.ClassificationOutput.
      **options: further options of `TPUEstimator`, such as eval_on_tpu or export_to_tpu.

    Raises:
      InvalidSetting: neither or both of keras_model and keras_model_path are set, or the model
        cannot be loaded; or the model has an option that `trainer.keras.model.unsupported_options`
        lists; or export_outputs names an output that the model does not have; or metric_names_map
        gives a metric the name "loss".
      CheckpointMismatch: the checkpoint in model_dir belongs to a different model.
      UnsupportedVersion: the installed Keras version lacks a private name that trainer uses.
    """
    name_maps = NameMaps(metric_names_map, export_outputs)
    adapter, keras_model = _load_or_check(keras_model, keras_model_path, custom_objects)
    config = config or RunConfig()
    model_dir = model_dir or config.model_dir or tempfile.mkdtemp()
    converted = _convert_model(adapter, keras_model, custom_objects, name_maps, use_tpu=use_tpu)
    estimator = KerasTPUEstimator(
        converted,
        config,
        class_weight,
        params,
        model_dir=model_dir,
        use_tpu=use_tpu,
        train_batch_size=train_batch_size,
        eval_batch_size=eval_batch_size,
        predict_batch_size=predict_batch_size,
        **options,
    )
    start = _prepare_first_checkpoint(
        converted,
        model_dir,
        warm_start.to_warm_start_settings(options.get("warm_start_from")),
        is_chief=config.is_chief,
    )
    _log_conversion(converted, start)
    return estimator


def _load_or_check(
    model: Any, path: str | None, custom_objects: Mapping[str, Any] | None
) -> tuple[KerasAdapter, Any]:
    if (model is None) == (path is None):
        state = "neither is" if model is None else "both are"
        raise InvalidSetting(
            f"Set either keras_model or keras_model_path of model_to_tpu_estimator; {state} set."
        )
    if path is not None:
        return load_model(str(path), custom_objects)
    return find_adapter(model), model


def _convert_model(
    adapter: KerasAdapter,
    model: Any,
    custom_objects: Mapping[str, Any] | None,
    name_maps: NameMaps,
    *,
    use_tpu: bool,
) -> ConvertedModel:
    """Check that a model has no unsupported option, and wrap it in a ConvertedModel."""
    graph_model = None
    if tracing.is_graph_model(model):
        # Import graph_mode here, so that a program without models of TensorFlow 1 does not import
        # tf_keras.
        from trainer.keras import graph_mode

        graph_model, model = model, graph_mode.clone_for_eager(model, custom_objects)
    check_convertible(adapter, model, use_tpu=use_tpu)
    return ConvertedModel(
        adapter, model, is_in_checkpoint=False, graph_model=graph_model, name_maps=name_maps
    )


def _prepare_first_checkpoint(
    converted: ConvertedModel,
    model_dir: str,
    settings: warm_start.WarmStartSettings | None,
    *,
    is_chief: bool,
) -> str:
    """Check that the newest checkpoint fits the model; if there is none, the chief writes one."""
    newest = tf.train.latest_checkpoint(model_dir)
    if not converted.is_built:
        converted.is_in_checkpoint = newest is not None
        return newest or "new weights, created when the first batch defines the input shapes"
    if newest is not None:
        first_checkpoint.check_checkpoint(newest, converted.variables())
    elif is_chief:
        values = _first_values(converted, settings)
        first_checkpoint.write_checkpoint(model_dir, values)
        newest = f"the model's own values, at step {values[checkpoints.GLOBAL_STEP]}"
        if settings is not None:
            newest += f", with values of {settings.ckpt_to_initialize_from}"
    else:
        newest = "the checkpoint that the chief writes"
    converted.is_in_checkpoint = True
    return newest


def _first_values(
    converted: ConvertedModel, settings: warm_start.WarmStartSettings | None
) -> dict[str, Any]:
    """Return the values of the first checkpoint: variable name → array, with the global step."""
    adapter, model = converted.adapter, converted.model
    values = variables.initial_values(adapter, model, converted.variables())
    with eager_mode():
        values[checkpoints.GLOBAL_STEP] = np.int64(adapter.iterations(model).numpy())
    if settings is None:
        return values
    return variables.warm_start_values(adapter, model, converted.variables(), values, settings)


def _log_conversion(converted: ConvertedModel, start: str) -> None:
    with eager_mode():
        description = converted.adapter.describe(converted.model)
    count = "not built yet"
    if converted.is_built:
        all_variables = converted.variables()
        num_slots = sum(variable.is_slot for variable in all_variables)
        num_trained = sum(variable.is_trained for variable in all_variables)
        num_others = len(all_variables) - num_slots - num_trained
        count = (
            f"{num_trained} trainable and {num_others} other weights, "
            f"{num_slots} optimizer variables"
        )
    parts = "; ".join(f"{name} {text}" for name, text in description.items() if text != "none")
    logger.info("Converted %s to a TPUEstimator: %s; %s", converted.label, parts, count)
    logger.info("%s starts from %s", converted.label, start)
