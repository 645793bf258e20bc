"""Functions of tf.contrib.estimator that change an estimator, a model_fn or an optimizer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config import user_functions
from trainer.estimator import plain_export
from trainer.model.spec import ModeKeys
from trainer.tensorflow_internals import PredictOutput

v1 = tf.compat.v1


def forward_features(
    estimator: Any,
    keys: str | Sequence[str] | None = None,
    sparse_default_values: Mapping[str, Any] | None = None,
) -> Any:
    """Return an estimator that adds features to its predictions.

    Args:
      keys: the names of the features; None adds all.
      sparse_default_values: feature name → the value that fills a SparseTensor, which becomes
        dense.

    Raises:
      InvalidSetting: in a prediction: a feature is missing, is sparse without a default value, or
        has the name of a prediction.
    """
    plain_export.check_is_estimator(estimator)
    names = [keys] if isinstance(keys, str) else keys
    defaults = dict(sparse_default_values or {})
    return estimator.with_model_fn(lambda model_fn: _with_features(model_fn, names, defaults))


def _with_features(
    model_fn: Callable[..., Any], names: Sequence[str] | None, defaults: Mapping[str, Any]
) -> Callable[..., Any]:
    @user_functions.wraps(model_fn)
    def extended_model_fn(**named: Any) -> Any:
        given = named["features"]
        features = dict(given) if isinstance(given, Mapping) else {}
        spec = model_fn(**named)
        if spec.mode != ModeKeys.PREDICT:
            return spec
        if not features:
            raise InvalidSetting(
                f"forward_features got the features {given!r:.100}, which have no names. Give a "
                f"dict of features."
            )
        added = {
            name: _find_feature(features, name, defaults, spec.predictions)
            for name in (sorted(features) if names is None else names)
        }
        outputs = {
            name: PredictOutput({**output.outputs, **added})
            if isinstance(output, PredictOutput)
            else output
            for name, output in (spec.export_outputs or {}).items()
        }
        return spec._replace(
            predictions={**spec.predictions, **added}, export_outputs=outputs or None
        )

    return extended_model_fn


def _find_feature(
    features: Mapping[str, Any], name: str, defaults: Mapping[str, Any], predictions: Any
) -> Any:
    if name not in features:
        raise InvalidSetting(
            f"forward_features asks for {name!r}, and the features are "
            f"{', '.join(map(repr, sorted(features)))}. Name one of them."
        )
    if name in predictions:
        raise InvalidSetting(
            f"forward_features would add {name!r}, which is a prediction already. Rename one."
        )
    feature = features[name]
    if not isinstance(feature, tf.SparseTensor):
        return feature
    if name not in defaults:
        raise InvalidSetting(
            f"forward_features got the SparseTensor {name!r} without a default value. Give one in "
            f"sparse_default_values."
        )
    return tf.sparse.to_dense(feature, defaults[name])


class _ClippingOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer that clips gradients by their global norm before another one applies them."""

    def __init__(self, optimizer: Any, clip_norm: float) -> None:
        super().__init__(use_locking=False, name=f"ClipByNorm{optimizer.get_name()}")
        self._optimizer, self._clip_norm = optimizer, clip_norm

    def compute_gradients(self, *arguments: Any, **options: Any) -> Any:
        return self._optimizer.compute_gradients(*arguments, **options)

    def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **options: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, self._clip_norm)
        pairs = zip(clipped, variables, strict=True)
        return self._optimizer.apply_gradients(pairs, *arguments, **options)

    def get_slot(self, *arguments: Any, **options: Any) -> Any:
        return self._optimizer.get_slot(*arguments, **options)

    def get_slot_names(self) -> list[str]:
        return list(self._optimizer.get_slot_names())

    def variables(self) -> list[Any]:
        return list(self._optimizer.variables())


def clip_gradients_by_norm(optimizer: Any, clip_norm: float) -> Any:
    """Return an optimizer that clips gradients by their global norm.

    Args:
      optimizer: a tf.compat.v1.train.Optimizer, which applies the clipped gradients.
      clip_norm: the greatest global norm.
    """
    return _ClippingOptimizer(optimizer, clip_norm)


def replicate_model_fn(
    model_fn: Callable[..., Any],
    loss_reduction: str = v1.losses.Reduction.SUM_OVER_BATCH_SIZE,
    devices: Sequence[str] | None = None,
) -> Callable[..., Any]:
    """Return model_fn itself, for a run on one device.

    Raises:
      InvalidSetting: several devices are asked for.
    """
    found = devices or tf.config.list_logical_devices("GPU")
    if len(found) > 1:
        raise InvalidSetting(
            f"replicate_model_fn would run model_fn on {len(found)} devices in one graph. Give "
            f"devices with one name, or use TPUEstimator or a tf.distribute.MirroredStrategy."
        )
    return model_fn


def TowerOptimizer(optimizer_or_optimizer_fn: Any) -> Any:
    """Return the optimizer itself, for a run on one device.

    Args:
      optimizer_or_optimizer_fn: an optimizer, or a function that returns one.
    """
    is_optimizer = isinstance(optimizer_or_optimizer_fn, v1.train.Optimizer)
    return optimizer_or_optimizer_fn if is_optimizer else optimizer_or_optimizer_fn()


def export_all_saved_models(
    estimator: Any, export_dir_base: str, input_receiver_fn_map: Mapping[str, Any], **options: Any
) -> bytes:
    """Call `experimental_export_all_saved_models` of an estimator."""
    return bytes(
        estimator.experimental_export_all_saved_models(
            export_dir_base, input_receiver_fn_map, **options
        )
    )


def export_saved_model_for_mode(
    estimator: Any, export_dir_base: str, input_receiver_fn: Any, **options: Any
) -> bytes:
    """Call `export_saved_model` of an estimator for one mode.

    Args:
      options: those of `export_saved_model`; mode stands for experimental_mode.
    """
    mode = options.pop("mode", ModeKeys.PREDICT)
    return bytes(
        estimator.export_saved_model(
            export_dir_base, input_receiver_fn, experimental_mode=mode, **options
        )
    )
