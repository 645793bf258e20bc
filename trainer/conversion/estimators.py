"""to_tpu_estimator: converts an Estimator to a TPUEstimator."""

import dataclasses
import functools
import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import hyperparameters
from trainer.config.run_config import RunConfig, TPUConfig
from trainer.conversion import gradients, metrics
from trainer.estimator.estimator import Estimator
from trainer.estimator.tpu_estimator import TPUEstimator
from trainer.model.feature_codec import FeatureCodec
from trainer.model.model_program import TPUModelProgram, unbound_argument_names
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")

BATCH_SIZE = "batch_size"
# The key that TPUEstimator adds to the params of model_fn if, and only if, the model runs on a TPU.
# The converted model_fn finds out by this key where the model runs.
_CONTEXT = "context"


def to_tpu_estimator(
    estimator: Estimator,
    train_batch_size: int | None = None,
    eval_batch_size: int | None = None,
    predict_batch_size: int | None = None,
    *,
    tpu_config: TPUConfig | None = None,
    config: RunConfig | None = None,
    use_tpu: bool = True,
    **options: Any,
) -> TPUEstimator:
    """Convert an Estimator to a TPUEstimator with the same model, model_dir and hyperparameters.

    The model_fn and the input_fns need no changes. On a TPU:

    - Optimizers of tf.compat.v1.train and tf_keras apply the mean of the replicas' gradients. A
      training step therefore equals a step on the global batch if the loss is a mean over examples.
    - An EstimatorSpec becomes a TPUEstimatorSpec. Its metrics must be results of functions of
      tf.compat.v1.metrics, and are computed on the host. Hooks and export outputs are kept.
    - params["batch_size"] holds the batch size that input_fn should produce. A Dataset with batches
      of another or of an unknown size is rebatched. Tensors of dtype int64, uint64, int16, uint16,
      float64 or float16 are fed in 32 bits, and converted back for model_fn. An int64 or uint64
      that 32 bits cannot hold raises a tf.errors.InvalidArgumentError.

    If the TPUEstimator runs on the CPU, it calls model_fn and input_fn as the Estimator does. The
    only difference is that params has the additional keys "batch_size" and, for model_fn,
    "use_tpu".

    For an estimator that model_to_estimator has made from a Keras model, the result is the same as
    the result of `trainer.model_to_tpu_estimator`. Both estimators share the Keras model.

    Example:
      tpu = to_tpu_estimator(estimator, train_batch_size=1024)
      tpu.train(input_fn, max_steps=1000)

    Args:
      estimator: a trainer.Estimator. It is not changed, and shares its model_dir.
      train_batch_size: the global batch size of training, in examples. None takes "batch_size" of
        the estimator's params. Required for an estimator of a Keras model.
      eval_batch_size: the global batch size of evaluation, in examples; None for train_batch_size.
      predict_batch_size: the global batch size of prediction, in examples; None for
        train_batch_size.
      tpu_config: the settings of the training loop on the TPU; None takes config.tpu_config.
      config: the RunConfig; None takes the estimator's RunConfig.
      use_tpu: whether to run on a TPU; False runs the model on the CPU.
      options: further arguments of `TPUEstimator`, such as eval_on_tpu or export_to_tpu.

    Returns:
      A new TPUEstimator.

    Raises:
      InvalidType: estimator is not an Estimator; or it is a TPUEstimator, unless it is a
        KerasTPUEstimator that runs on the CPU; or its params are neither a mapping nor an HParams.
      InvalidSetting: there is no batch size, or TPUEstimator refuses an argument.
    """
    if isinstance(estimator, TPUEstimator):
        return _convert_keras_estimator(
            estimator,
            tpu_config=tpu_config,
            config=config,
            use_tpu=use_tpu,
            **_batch_sizes(train_batch_size, eval_batch_size, predict_batch_size),
            **options,
        )
    if not isinstance(estimator, Estimator):
        raise InvalidType(f"estimator is {estimator!r}. Give a trainer.Estimator.")
    program = estimator._program
    params = hyperparameters.copy_hyperparameters(program.params, takes_items=True)
    batch_size_of_params = _pop_batch_size(params)
    if train_batch_size is None:
        train_batch_size = batch_size_of_params
    if train_batch_size is None:
        raise InvalidSetting(
            "to_tpu_estimator has no train_batch_size, and the estimator's params have no "
            "'batch_size'. Give the global batch size, in rows."
        )
    batch_sizes = _batch_sizes(train_batch_size, eval_batch_size, predict_batch_size)
    codec = FeatureCodec()
    converted = TPUEstimator(
        model_fn=_convert_model_fn(program.model_fn, codec),
        model_dir=program.model_dir,
        config=_with_tpu_config(config or program.config, program.model_dir, tpu_config),
        params=params or None,
        use_tpu=use_tpu,
        warm_start_from=options.pop("warm_start_from", program.warm_start),
        **batch_sizes,
        **options,
    )
    assert isinstance(converted._program, TPUModelProgram)
    converted._program = dataclasses.replace(converted._program, encode_input=codec.encode)
    logger.info(
        "converted the Estimator of %s to a TPUEstimator: batches of %d, %d and %d rows in "
        "training, evaluation and prediction",
        program.model_dir,
        *batch_sizes.values(),
    )
    return converted


def _batch_sizes(
    train_batch_size: int | None, eval_batch_size: int | None, predict_batch_size: int | None
) -> dict[str, Any]:
    return {
        "train_batch_size": train_batch_size,
        "eval_batch_size": eval_batch_size or train_batch_size,
        "predict_batch_size": predict_batch_size or train_batch_size,
    }


def _convert_keras_estimator(
    estimator: TPUEstimator,
    *,
    tpu_config: TPUConfig | None,
    config: RunConfig | None,
    **options: Any,
) -> TPUEstimator:
    """Return a TPUEstimator with the Keras model, model_dir and hyperparameters of an estimator."""
    # Import the converter here and not at the top, because it imports Keras, which takes seconds.
    from trainer.keras.estimator import KerasTPUEstimator

    if not isinstance(estimator, KerasTPUEstimator) or estimator.uses_tpu:
        raise InvalidType("estimator is a TPUEstimator already. Use it as it is.")
    if options["train_batch_size"] is None:
        raise InvalidSetting(
            "to_tpu_estimator has no train_batch_size. Give the global batch size, in rows."
        )
    model_dir = estimator.model_dir
    config = _with_tpu_config(config or estimator.config, model_dir, tpu_config)
    return estimator.with_options(config=config, model_dir=model_dir, **options)


def _pop_batch_size(params: Any) -> int | None:
    if BATCH_SIZE not in params:
        return None
    size = int(hyperparameters.get_hyperparameter(params, BATCH_SIZE))
    if isinstance(params, MutableMapping):
        del params[BATCH_SIZE]
    else:
        params.del_hparam(BATCH_SIZE)
    return size


def _with_tpu_config(config: RunConfig, model_dir: str, tpu_config: TPUConfig | None) -> RunConfig:
    changes = {} if tpu_config is None else {"tpu_config": tpu_config}
    return config.replace(model_dir=model_dir, **changes)


def _convert_model_fn(model_fn: Callable[..., Any], codec: FeatureCodec) -> Callable[..., Any]:
    names = unbound_argument_names(model_fn)

    def converted_model_fn(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
        is_on_tpu = _CONTEXT in params
        if is_on_tpu:
            features, labels = codec.decode(features, labels, mode)
        available = {
            "features": features,
            "labels": labels,
            "mode": mode,
            "params": params,
            "config": config,
        }
        call = functools.partial(
            model_fn, **{name: available[name] for name in names if name in available}
        )
        if not is_on_tpu:
            return call()
        with gradients.average_gradients():
            if mode != ModeKeys.EVAL:
                return _to_tpu_spec(call(), None)
            with metrics.record_metrics() as recorder:
                spec = call()
        calls = recorder.find_calls(getattr(spec, "eval_metric_ops", None) or {})
        num_rows = hyperparameters.get_hyperparameter(params, BATCH_SIZE)
        eval_metrics = metrics.HostMetrics(calls, num_rows).to_eval_metrics() if calls else None
        return _to_tpu_spec(spec, eval_metrics)

    return converted_model_fn


def _to_tpu_spec(spec: Any, eval_metrics: Any) -> Any:
    """Convert an EstimatorSpec to a TPUEstimatorSpec; return a TPUEstimatorSpec unchanged."""
    if not isinstance(spec, EstimatorSpec):
        return spec
    return TPUEstimatorSpec(
        spec.mode,
        predictions=spec.predictions,
        loss=spec.loss,
        train_op=spec.train_op,
        eval_metrics=eval_metrics,
        export_outputs=spec.export_outputs,
        scaffold_fn=lambda: spec.scaffold,
        training_hooks=(*(spec.training_hooks or ()), *(spec.training_chief_hooks or ())),
        evaluation_hooks=spec.evaluation_hooks,
        prediction_hooks=spec.prediction_hooks,
    )
