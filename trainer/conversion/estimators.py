"""`to_tpu_estimator`: the door."""

import dataclasses
import functools
import logging
from collections.abc import Callable
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
    """A TPUEstimator of the model, model_dir and hyperparameters of a plain Estimator.

    Its model_fn and the input_fns written for it stay as they are. On a TPU:

    - An optimizer of tf.compat.v1.train or tf_keras applies the mean of the replicas' gradients,
      so that a step is one on the global batch where the loss is a mean over rows.
    - An EstimatorSpec becomes a TPUEstimatorSpec: metrics that are calls of tf.compat.v1.metrics
      are made on the host, hooks and outputs are taken over.
    - params["batch_size"] has the size that input_fn is to make batches of. Batches of another
      size, or of an unknown one, are cut anew, and types that a TPU is not fed (int64, float64)
      travel in 32 bits and reach model_fn as they were.

    Off the TPU nothing is changed but that params has "batch_size".

    Of an Estimator that model_to_estimator has made of a Keras model it is what
    `model_to_tpu_estimator` would have made, and both share the model.

    Example:
      tpu = to_tpu_estimator(estimator, train_batch_size=1024)
      tpu.train(input_fn, max_steps=1000)

    Args:
      estimator: a trainer.Estimator; it is not changed, and shares its model_dir.
      train_batch_size, eval_batch_size, predict_batch_size: global batch sizes, in rows. The
        first may be left out where the estimator's params have "batch_size"; the others are as
        the first where they are left out.
      tpu_config: how its loop runs on a TPU; by default the estimator's config's.
      config: how it runs; by default the estimator's.
      use_tpu: see `TPUEstimator`.
      options: more arguments of `TPUEstimator`, such as eval_on_tpu or export_to_tpu.

    Raises:
      InvalidType: it is no Estimator.
      InvalidSetting: there is no batch size, or TPUEstimator refuses an argument.
    """
    if isinstance(estimator, TPUEstimator):
        return _of_keras(
            estimator,
            tpu_config=tpu_config,
            config=config,
            use_tpu=use_tpu,
            train_batch_size=train_batch_size,
            eval_batch_size=eval_batch_size or train_batch_size,
            predict_batch_size=predict_batch_size or train_batch_size,
            **options,
        )
    if not isinstance(estimator, Estimator):
        raise InvalidType(f"estimator is {estimator!r}. Give a trainer.Estimator.")
    program = estimator._program
    params = hyperparameters.with_hyperparameters(program.params, {})
    of_params = _taken_out(params)
    train_batch_size = of_params if train_batch_size is None else train_batch_size
    if train_batch_size is None:
        raise InvalidSetting(
            "to_tpu_estimator has no train_batch_size, and the estimator's params have no "
            "'batch_size'. Give the global batch size, in rows."
        )
    wire = FeatureCodec()
    config = config or program.config
    converted = TPUEstimator(
        model_fn=_model_fn(program.model_fn, wire),
        model_dir=program.model_dir,
        config=_with_tpu_config(config, program.model_dir, tpu_config),
        params=params or None,
        use_tpu=use_tpu,
        train_batch_size=train_batch_size,
        eval_batch_size=eval_batch_size or train_batch_size,
        predict_batch_size=predict_batch_size or train_batch_size,
        warm_start_from=options.pop("warm_start_from", program.warm_start),
        **options,
    )
    assert isinstance(converted._program, TPUModelProgram)
    converted._program = dataclasses.replace(converted._program, encode_input=wire.encode)
    logger.info(
        "Estimator of %s made a TPUEstimator: batches of %d, %d and %d rows in training, "
        "evaluation and prediction",
        program.model_dir,
        train_batch_size,
        eval_batch_size or train_batch_size,
        predict_batch_size or train_batch_size,
    )
    return converted


def _of_keras(
    estimator: TPUEstimator,
    *,
    tpu_config: TPUConfig | None,
    config: RunConfig | None,
    **options: Any,
) -> TPUEstimator:
    # Whoever has no Keras model need not pay for the import of Keras.
    from trainer.keras.estimator import KerasTPUEstimator

    if not isinstance(estimator, KerasTPUEstimator) or estimator.uses_tpu:
        raise InvalidType("estimator is a TPUEstimator already. Use it as it is.")
    if options["train_batch_size"] is None:
        raise InvalidSetting(
            "to_tpu_estimator has no train_batch_size. Give the global batch size, in rows."
        )
    model_dir = estimator.model_dir
    config = _with_tpu_config(config or estimator.config, model_dir, tpu_config)
    return estimator.run_otherwise(config=config, model_dir=model_dir, **options)


def _taken_out(params: Any) -> int | None:
    """The batch size among hyperparameters, which a TPUEstimator puts there itself."""
    if BATCH_SIZE not in params:
        return None
    size = int(hyperparameters.get_hyperparameter(params, BATCH_SIZE))
    if isinstance(params, dict):
        del params[BATCH_SIZE]
    else:
        params.del_hparam(BATCH_SIZE)
    return size


def _with_tpu_config(config: RunConfig, model_dir: str, tpu_config: TPUConfig | None) -> RunConfig:
    changes = {} if tpu_config is None else {"tpu_config": tpu_config}
    return config.replace(model_dir=model_dir, **changes)


def _model_fn(model_fn: Callable[..., Any], wire: FeatureCodec) -> Callable[..., Any]:
    """The model_fn of a TPUEstimator that builds the same model."""
    names = unbound_argument_names(model_fn)

    def converted(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
        # The context is there in a run on a TPU alone, and not in an export.
        is_on_tpu = _CONTEXT in params
        if is_on_tpu:
            features, labels = wire.decode(features, labels, mode)
        given = {"labels": labels, "mode": mode, "params": params, "config": config}
        call = functools.partial(
            model_fn, features, **{name: given[name] for name in names if name in given}
        )
        if not is_on_tpu:
            return call()
        with gradients.average_gradients():
            if mode != ModeKeys.EVAL:
                return _for_tpu(call(), None)
            with metrics.record_metrics() as records:
                spec = call()
        calls = records.calls_of(getattr(spec, "eval_metric_ops", None) or {})
        rows = hyperparameters.get_hyperparameter(params, BATCH_SIZE)
        host_metrics = metrics.HostMetrics(calls, rows).pair() if calls else None
        return _for_tpu(spec, host_metrics)

    return converted


def _for_tpu(spec: Any, eval_metrics: Any) -> Any:
    """A spec in the form that a TPU can run; one that has it already stays as it is."""
    if not isinstance(spec, EstimatorSpec):
        return spec
    scaffold = spec.scaffold
    return TPUEstimatorSpec(
        spec.mode,
        predictions=spec.predictions,
        loss=spec.loss,
        train_op=spec.train_op,
        eval_metrics=eval_metrics,
        export_outputs=spec.export_outputs,
        scaffold_fn=None if scaffold is None else lambda: scaffold,
        training_hooks=(*(spec.training_hooks or ()), *(spec.training_chief_hooks or ())),
        evaluation_hooks=spec.evaluation_hooks,
        prediction_hooks=spec.prediction_hooks,
    )
