"""tf.contrib.learn: its canned estimators, by those of tf.estimator that have the same models."""

from collections.abc import Callable, Iterator
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names
from trainer.compat.imports.canned_internals import dnn, dnn_linear_combined, kmeans, linear
from trainer.model.spec import ModeKeys

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
        if option not in _REFUSED and value is not None
    }


class _LearnMethods:
    """The methods that canned estimators of tf.contrib.learn have beside those of tf.estimator."""

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
        if x is not None or y is not None or batch_size is not None or input_fn is None:
            raise InvalidSetting(
                "fit() of tf.contrib.learn takes arrays x and y no longer. Give input_fn, for "
                "example tf.estimator.inputs.numpy_input_fn(x, y, batch_size, shuffle=True)."
            )
        hooks = monitors if isinstance(monitors, (list, tuple)) else monitors and [monitors]
        return self.train(input_fn, hooks, steps, max_steps)  # type: ignore[attr-defined]

    def predict_classes(self, input_fn: Callable[[], Any]) -> Iterator[Any]:
        """Yield the class of each example."""
        return self._values(input_fn, "class_ids")

    def predict_proba(self, input_fn: Callable[[], Any]) -> Iterator[Any]:
        """Yield the probabilities of each example's classes."""
        return self._values(input_fn, "probabilities")

    def predict_scores(self, input_fn: Callable[[], Any]) -> Iterator[Any]:
        """Yield the predicted number of each example."""
        return self._values(input_fn, "predictions")

    def _values(self, input_fn: Callable[[], Any], key: str) -> Iterator[Any]:
        for prediction in self.predict(input_fn, key):  # type: ignore[attr-defined]
            value = prediction[key]
            yield value if key == "probabilities" else value[0]


def _learn_class(base: Any) -> Any:
    """Return a class of tf.estimator with the arguments and methods of tf.contrib.learn."""

    class LearnEstimator(_LearnMethods, base):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **_translate(base.__name__, options))

    LearnEstimator.__name__ = LearnEstimator.__qualname__ = base.__name__
    return LearnEstimator


DNNClassifier = _learn_class(dnn.DNNClassifier)
DNNRegressor = _learn_class(dnn.DNNRegressor)
LinearClassifier = _learn_class(linear.LinearClassifier)
LinearRegressor = _learn_class(linear.LinearRegressor)
DNNLinearCombinedClassifier = _learn_class(dnn_linear_combined.DNNLinearCombinedClassifier)
DNNLinearCombinedRegressor = _learn_class(dnn_linear_combined.DNNLinearCombinedRegressor)

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.learn", __all__)
