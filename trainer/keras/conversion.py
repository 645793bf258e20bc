"""From a Keras model to a TPUEstimator: the door."""

import logging
import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import RunConfig
from trainer.keras.estimator import KerasTPUEstimator
from trainer.keras.model import first_checkpoint, tf2_engine, variables
from trainer.keras.model.adapter import KerasAdapter, find_adapter, load_model
from trainer.keras.model.compatibility import check_convertible
from trainer.keras.model.converted_model import ConvertedModel
from trainer.keras.model.name_maps import NameMaps
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
    """A TPUEstimator that does what a compiled Keras model does, from its current weights on.

    Example:
      model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
      estimator = model_to_tpu_estimator(model, model_dir="/tmp/digits", train_batch_size=64)
      estimator.train(input_fn, max_steps=1000)
      estimator.export_saved_model("/tmp/export")
      to_keras(estimator).fit(...)

    A step is that of model.fit with the global batch: the model, its losses, its regularizers and
    its optimizer are run as they are, on the mean of all replicas' gradients. The optimizer's
    state, its count of steps included, is in the checkpoints beside the weights. Where there is
    no checkpoint in model_dir yet, one is written with the model's own values; else the estimator
    goes on from that.

    A model that was made without eager execution, as programs of TensorFlow 1 do, stays as it is,
    in its graph and its session: a twin of the same layers, settings and values is trained.

    Batches for a TPU may be as for model.fit: they are cut to the batch size, and types that it is
    not fed, as int64 labels, travel in 32 bits and reach the model as they were.

    What differs from model.fit on a TPU: batch normalization normalizes by the rows of a replica,
    unless it is synchronized, and the moving averages are means over the replicas; random layers
    draw other numbers; gradients of embeddings are dense, while those of model.fit are sparse, to
    which some optimizers, as Adam of Keras 3, do something else; a loss that divides by what is
    not the same on all replicas, as by the rows that are not masked, is a mean of the replicas'
    means.

    Args:
      keras_model: a compiled model, of Keras 3 or of tf_keras; or
      keras_model_path: the path of one, as model.save writes it.
      custom_objects: name → class or function that the file at keras_model_path needs.
      model_dir: where checkpoints and summaries go; by default the config's, else a new
        temporary directory.
      config: how to run; None for the defaults.
      use_tpu: run on a TPU. False runs on the CPU.
      train_batch_size, eval_batch_size, predict_batch_size: global batch sizes, in rows, which an
        input_fn finds in params["batch_size"].
      params: hyperparameters for the input_fn.
      class_weight: class → how much its rows count in training, as in model.fit.
      metric_names_map: name of a metric in Keras → its name in evaluate(); all metrics have one,
        but the losses have none.
      export_outputs: name of an output → class, as tf.estimator.export.ClassificationOutput: an
        export has a signature of that name besides serving_default, with that output alone.
      **options: others of `TPUEstimator`, as eval_on_tpu or export_to_tpu.

    Raises:
      InvalidSetting: no model or two are given, or the model has an option of
        `trainer.keras.model.unsupported_options`; it is named. Or a name is given to what the model
        has not.
      InvalidType: it is no Keras model.
      CheckpointMismatch: the checkpoint in model_dir is of another model.
    """
    names = NameMaps(metric_names_map, export_outputs)
    if (keras_model is None) == (keras_model_path is None):
        raise InvalidSetting(
            "keras_model and keras_model_path are both given, or neither is. Give one of them."
        )
    if keras_model_path is not None:
        adapter, keras_model = load_model(str(keras_model_path), custom_objects)
    else:
        adapter = find_adapter(keras_model)
    graph_model = None
    if tf2_engine.is_graph_model(keras_model):
        graph_model, keras_model = keras_model, _clone_for_eager(keras_model, custom_objects)
    check_convertible(adapter, keras_model, use_tpu=use_tpu)
    config = config or RunConfig()
    model_dir = model_dir or config.model_dir or tempfile.mkdtemp()
    converted = ConvertedModel(
        adapter, keras_model, is_in_checkpoint=False, graph_model=graph_model, names=names
    )
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
    start = _prepare_first_checkpoint(converted, model_dir, is_chief=config.is_chief)
    _log_conversion(adapter, converted, start)
    return estimator


def _clone_for_eager(model: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    # Whoever has none need not pay for the import of tf_keras.
    from trainer.keras.tf_keras import graph_mode

    return graph_mode.clone_for_eager(model, custom_objects)


def _prepare_first_checkpoint(converted: ConvertedModel, model_dir: str, *, is_chief: bool) -> str:
    """Sees to it that a training finds what it starts from; says what that is."""
    newest = tf.train.latest_checkpoint(model_dir)
    if not converted.is_built:
        converted.is_in_checkpoint = newest is not None
        return newest or "new weights, once a batch says what the inputs are"
    if newest is not None:
        first_checkpoint.check_checkpoint(newest, converted.variables())
    elif is_chief:
        values = variables.initial_values(converted.adapter, converted.model, converted.variables())
        with eager_mode():
            step = int(converted.adapter.iterations(converted.model).numpy())
        first_checkpoint.write_checkpoint(model_dir, values, step)
        newest = f"the model's own values, at step {step}"
    else:
        newest = "what the chief starts from"
    converted.is_in_checkpoint = True
    return newest


def _log_conversion(adapter: KerasAdapter, converted: ConvertedModel, start: str) -> None:
    model = converted.model
    with eager_mode():
        parts = adapter.describe(model)
    count = "unbuilt"
    if converted.is_built:
        found = converted.variables()
        slots = sum(each.is_slot for each in found)
        trained = sum(each.is_trained for each in found)
        count = (
            f"{trained} trained and {len(found) - slots - trained} other weights, {slots} of the "
            f"optimizer"
        )
    said = "; ".join(f"{name} {value}" for name, value in parts.items() if value != "none")
    logger.info("%s becomes a TPUEstimator: %s; %s", converted.where, said, count)
    logger.info("%s starts from %s", converted.where, start)
