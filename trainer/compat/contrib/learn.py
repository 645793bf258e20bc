"""tf.contrib.learn: its canned estimators, by those of tf.estimator that have the same models."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names
from trainer.compat.imports.canned_internals import dnn, dnn_linear_combined, kmeans, linear
from trainer.model import spec

__all__ = [
    "DNNClassifier",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "KMeansClustering",
    "LinearClassifier",
    "LinearRegressor",
    "ModeKeys",
]

KMeansClustering = kmeans.KMeansClustering

# Argument of tf.contrib.learn → that of tf.estimator.
_RENAMED = {"weight_column_name": "weight_column", "label_keys": "label_vocabulary"}
# Arguments without a counterpart → what to do instead.
_REFUSED = {
    "embedding_lr_multipliers": "Use an optimizer for all variables.",
    "enable_centered_bias": "Leave it out: each model has a bias.",
    "feature_engineering_fn": "Change the features in input_fn.",
    "gradient_clip_norm": "Give an optimizer from tf.contrib.estimator.clip_gradients_by_norm.",
    "input_layer_min_slice_size": "Give input_layer_partitioner.",
    "joint_linear_weights": "Leave it out: each column has weights of its own.",
}


# An argument that asks for the only behaviour of tf.estimator.
_IGNORED = {"fix_global_step_increment_bug"}


def _translate(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator of tf.estimator for those of tf.contrib.learn."""
    for option, advice in _REFUSED.items():
        if options.get(option):
            raise InvalidSetting(
                f"tf.contrib.learn.{name} got {option}, which is not supplied. {advice}"
            )
    return {
        _RENAMED.get(option, option): value
        for option, value in options.items()
        if option not in (*_REFUSED, *_IGNORED) and value is not None
    }


class ModeKeys(spec.ModeKeys):
    """The modes in which a model_fn is called."""

    INFER = spec.ModeKeys.PREDICT


def _check_input_fn(method: str, input_fn: Any, arrays: dict[str, Any]) -> None:
    """Check that a method got an input_fn, and none of the arguments for arrays."""
    given = [name for name, value in arrays.items() if value is not None]
    if given or input_fn is None:
        raise InvalidSetting(
            f"{method}() of tf.contrib.learn got {', '.join(given) or 'no input_fn'}, and takes no "
            f"arrays. Give input_fn, for example tf.estimator.inputs.numpy_input_fn(x, y, "
            f"batch_size, shuffle=True)."
        )


class _LearnMethods:
    """The methods that canned estimators of tf.contrib.learn have beside those of tf.estimator."""

    _has_label_keys = False

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Callable[[], Any] | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: Any = None,
        max_steps: int | None = None,
    ) -> Any:
        """Train; return the estimator.

        Args:
          input_fn: returns batches of (features, labels).
          monitors: SessionRunHooks.
        """
        _check_input_fn("fit", input_fn, {"x": x, "y": y, "batch_size": batch_size})
        hooks = monitors if isinstance(monitors, (list, tuple)) else monitors and [monitors]
        return self.train(input_fn, hooks, steps, max_steps)  # type: ignore[attr-defined]

    def predict_classes(
        self, x: Any = None, input_fn: Any = None, batch_size: Any = None, as_iterable: bool = True
    ) -> Any:
        """Return the class of each example: its number, or one of label_keys."""
        key = "classes" if self._has_label_keys else "class_ids"
        return self._values("predict_classes", key, x, input_fn, batch_size, as_iterable)

    def predict_proba(
        self, x: Any = None, input_fn: Any = None, batch_size: Any = None, as_iterable: bool = True
    ) -> Any:
        """Return the probabilities of each example's classes."""
        return self._values("predict_proba", "probabilities", x, input_fn, batch_size, as_iterable)

    def predict_scores(
        self, x: Any = None, input_fn: Any = None, batch_size: Any = None, as_iterable: bool = True
    ) -> Any:
        """Return the predicted number of each example; an array if label_dimension is above 1."""
        return self._values("predict_scores", "predictions", x, input_fn, batch_size, as_iterable)

    def _values(
        self, method: str, key: str, x: Any, input_fn: Any, batch_size: Any, as_iterable: bool
    ) -> Any:
        _check_input_fn(method, input_fn, {"x": x, "batch_size": batch_size})
        predictions = self.predict(input_fn, key)  # type: ignore[attr-defined]
        values = (row[key][0] if len(row[key]) == 1 else row[key] for row in predictions)
        return values if as_iterable else np.array(list(values))


def _learn_class(base: Any) -> Any:
    """Return a class of tf.estimator with the arguments and methods of tf.contrib.learn."""

    class LearnEstimator(_LearnMethods, base):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **_translate(base.__name__, options))
            self._has_label_keys = options.get("label_keys") is not None

    LearnEstimator.__name__ = LearnEstimator.__qualname__ = base.__name__
    return LearnEstimator


DNNClassifier = _learn_class(dnn.DNNClassifier)
DNNRegressor = _learn_class(dnn.DNNRegressor)
LinearClassifier = _learn_class(linear.LinearClassifier)
LinearRegressor = _learn_class(linear.LinearRegressor)
DNNLinearCombinedClassifier = _learn_class(dnn_linear_combined.DNNLinearCombinedClassifier)
DNNLinearCombinedRegressor = _learn_class(dnn_linear_combined.DNNLinearCombinedRegressor)

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.learn", __all__)
