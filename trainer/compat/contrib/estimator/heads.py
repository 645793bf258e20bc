"""The heads of tf.contrib.estimator, made of those of tf.estimator."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.canned_heads import check_head_names
from trainer.compat.imports.canned_internals import head as canned_head
from trainer.compat.imports.canned_internals import metric_keys
from trainer.compat.imports.canned_internals import multi_label_head as canned_multi_label_head
from trainer.estimator.add_metrics import combine_metrics
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

v1 = tf.compat.v1

_MEAN = v1.losses.Reduction.SUM_OVER_BATCH_SIZE
# The reductions of tf.losses in TensorFlow 1 → those in TensorFlow 2.
REDUCTIONS = {_MEAN: "sum_over_batch_size", v1.losses.Reduction.SUM: "sum"}
_DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def multi_class_head(
    n_classes: int,
    weight_column: Any = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for one of more than two classes, with the loss of a softmax."""
    return canned_head._multi_class_head_with_softmax_cross_entropy_loss(
        n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name
    )


def binary_classification_head(
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for one of two classes, with the loss of a sigmoid."""
    return canned_head._binary_logistic_head_with_sigmoid_cross_entropy_loss(
        weight_column, thresholds, label_vocabulary, loss_reduction, loss_fn, name
    )


def regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    inverse_link_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for numbers, with the squared error as its loss."""
    return canned_head._regression_head(
        weight_column, label_dimension, loss_reduction, loss_fn, inverse_link_fn, name
    )


def poisson_regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    compute_full_loss: bool = True,
    name: str | None = None,
) -> Any:
    """Return a head for counts, whose logits are the logarithms of their means."""

    def poisson_loss(labels: Any, logits: Any) -> Any:
        return tf.nn.log_poisson_loss(labels, logits, compute_full_loss=compute_full_loss)

    return regression_head(
        weight_column, label_dimension, loss_reduction, poisson_loss, tf.exp, name
    )


def logistic_regression_head(
    weight_column: Any = None, loss_reduction: str = _MEAN, name: str | None = None
) -> Any:
    """Return a head for numbers from 0 to 1, whose logits are their log-odds."""

    def logistic_loss(labels: Any, logits: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return regression_head(weight_column, 1, loss_reduction, logistic_loss, tf.sigmoid, name)


class _MultiLabelHead(canned_multi_label_head.MultiLabelHead):
    """A MultiLabelHead that takes an optimizer of TensorFlow 1."""

    def create_estimator_spec(
        self, features: Any, mode: str, logits: Any, labels: Any = None, **options: Any
    ) -> Any:
        optimizer = options.get("optimizer")
        if isinstance(optimizer, v1.train.Optimizer):
            options |= {"optimizer": None, "train_op_fn": _minimizer(optimizer)}
        return super().create_estimator_spec(features, mode, logits, labels, **options)


def multi_label_head(
    n_classes: int,
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    classes_for_class_based_metrics: Sequence[Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for any number of classes at once, each with the loss of a sigmoid."""
    if loss_reduction not in REDUCTIONS:
        raise InvalidSetting(
            f"multi_label_head got loss_reduction={loss_reduction!r}. Give tf.losses.Reduction.SUM "
            f"or SUM_OVER_BATCH_SIZE."
        )
    return _MultiLabelHead(
        n_classes,
        weight_column,
        thresholds,
        label_vocabulary,
        REDUCTIONS[loss_reduction],
        loss_fn,
        classes_for_class_based_metrics,
        name,
    )


def multi_head(heads: Sequence[Any], head_weights: Sequence[float] | None = None) -> Any:
    """Return a head that trains several heads at once, on the weighted sum of their losses.

    Args:
      heads: heads with names of their own.
      head_weights: one weight for the loss of each head; None for equal weights of 1.

    Raises:
      InvalidSetting: there is no head, a head has no name or the name of another, or the number of
        weights differs.
    """
    check_head_names(heads)
    if head_weights is not None and len(head_weights) != len(heads):
        raise InvalidSetting(
            f"multi_head got {len(head_weights)} head_weights for {len(heads)} heads. Give one "
            f"for each."
        )
    return _MultiHead(heads, head_weights or [1.0] * len(heads))


class _MultiHead(canned_head._Head):
    """Joins the specs of several heads; the logits and the labels are dicts by head name."""

    def __init__(self, heads: Sequence[Any], weights: Sequence[float]) -> None:
        self._heads, self._weights = list(heads), list(weights)

    @property
    def name(self) -> str:
        return "_".join(head.name for head in self._heads)

    @property
    def logits_dimension(self) -> int:
        return sum(head.logits_dimension for head in self._heads)

    def create_loss(self, features: Any, mode: str, logits: Any, labels: Any) -> Any:
        raise NotImplementedError("multi_head has the losses of its heads.")

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Any:
        by_head = self._split(logits)
        if labels is not None:
            self._check_names("labels", labels)
        specs = {
            head.name: head.create_estimator_spec(
                features=features,
                mode=mode,
                logits=by_head[head.name],
                labels=None if labels is None else labels[head.name],
                train_op_fn=lambda loss: tf.no_op(),
            )
            for head in self._heads
        }
        predictions = {
            (name, key): value
            for name, spec in specs.items()
            for key, value in spec.predictions.items()
        }
        if mode == ModeKeys.PREDICT:
            outputs = _export_outputs(specs, self._heads[0].name)
            return EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
        losses = [spec.loss for spec in specs.values()]
        loss = tf.add_n(
            [
                *(loss * weight for loss, weight in zip(losses, self._weights, strict=True)),
                *(regularization_losses or ()),
            ]
        )
        if mode == ModeKeys.EVAL:
            return _evaluation_spec(specs, predictions, loss)
        train_op = (train_op_fn or _minimizer(optimizer))(loss)
        return EstimatorSpec(mode, predictions, loss, train_op)

    def _check_names(self, kind: str, given: Mapping[str, Any]) -> None:
        """Check that a dict of logits or labels has those of each head."""
        missing = [head.name for head in self._heads if head.name not in given]
        if missing:
            raise InvalidSetting(
                f"multi_head got {kind} for {', '.join(map(repr, given))}, and none for "
                f"{', '.join(map(repr, missing))}. Give the {kind} of each head."
            )

    def _split(self, logits: Any) -> Mapping[str, Any]:
        """Return the logits of each head; one tensor has them side by side."""
        names = [head.name for head in self._heads]
        if not isinstance(logits, Mapping):
            sizes = [head.logits_dimension for head in self._heads]
            if logits.shape[-1] != sum(sizes):
                raise InvalidSetting(
                    f"multi_head got logits of shape {logits.shape}, and its heads have "
                    f"{' + '.join(map(str, sizes))} logits. Give {sum(sizes)} for each example."
                )
            return dict(zip(names, tf.split(logits, sizes, axis=-1), strict=True))
        self._check_names("logits", logits)
        return logits


def _evaluation_spec(specs: Mapping[str, Any], predictions: Any, loss: Any) -> Any:
    """Join the metrics of all heads, and add the mean of each head's loss."""

    def loss_metrics(losses: Mapping[str, Any]) -> dict[str, Any]:
        key = metric_keys.MetricKeys.LOSS
        return {f"{key}/{name}": v1.metrics.mean(loss) for name, loss in losses.items()}

    # On a TPU, the host joins the values of all replicas along the first dimension.
    losses = {name: tf.reshape(spec.loss, [1]) for name, spec in specs.items()}
    if not isinstance(next(iter(specs.values())), TPUEstimatorSpec):
        metrics = loss_metrics(losses)
        for spec in specs.values():
            metrics.update(spec.eval_metric_ops)
        return EstimatorSpec(ModeKeys.EVAL, predictions, loss, eval_metric_ops=metrics)
    eval_metrics = combine_metrics(None, loss_metrics, {"losses": losses})
    for spec in specs.values():
        eval_metrics = combine_metrics(eval_metrics, *spec.eval_metrics)
    return TPUEstimatorSpec(ModeKeys.EVAL, predictions, loss, eval_metrics=eval_metrics)


def _export_outputs(specs: Mapping[str, Any], first: str) -> dict[str, Any]:
    """Name the signatures of each head after it; the first one's is the default too."""
    outputs = {_DEFAULT_SIGNATURE: specs[first].export_outputs[_DEFAULT_SIGNATURE]}
    for name, spec in specs.items():
        for key, output in spec.export_outputs.items():
            outputs[name if key == _DEFAULT_SIGNATURE else f"{name}/{key}"] = output
    return outputs


def _minimizer(optimizer: Any) -> Callable[[Any], Any]:
    """Return a function that builds the op of a step from a loss."""
    if optimizer is None:
        raise InvalidSetting(
            "create_estimator_spec got neither optimizer nor train_op_fn. Give one of them."
        )
    return lambda loss: optimizer.minimize(loss, v1.train.get_global_step())
