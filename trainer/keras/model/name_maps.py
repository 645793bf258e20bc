"""The user's names for the metrics and the outputs of a Keras model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType, MissingKey
from trainer.tensorflow_internals import PredictOutput

_DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class NameMaps:
    """The options metric_names_map and export_outputs of `model_to_tpu_estimator`.

    The options follow the rules of model_to_estimator in tensorflow_estimator's file keras_lib.py.

    Attributes:
      metrics: Keras metric name → name in the result of evaluate(), for all metrics except the
        losses; None or an empty map keeps Keras's names.
      outputs: output name → class of a tf.estimator export output, which is called with the
        output's tensor. None or an empty map exports only the signature serving_default, which
        contains all outputs.
    """

    metrics: Mapping[str, str] | None = None
    outputs: Mapping[str, Callable[[Any], Any]] | None = None

    def __post_init__(self) -> None:
        """Check the types of both maps."""
        for option, value in (
            ("metric_names_map", self.metrics),
            ("export_outputs", self.outputs),
        ):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidType(f"{option} must be a dict or None (got {value!r}).")
        for name, output_class in (self.outputs or {}).items():
            if not callable(output_class):
                raise InvalidType(
                    f"export_outputs[{name!r}] must be a class that is called with the output, "
                    f"such as tf.estimator.export.ClassificationOutput (got {output_class!r})."
                )
        for name, new_name in (self.metrics or {}).items():
            if new_name == "loss":
                raise InvalidSetting(
                    f"metric_names_map[{name!r}] is 'loss', which is already a key of the result "
                    f"of evaluate(). Give the metric another name."
                )

    def rename_metrics(self, results: Mapping[str, Any], losses: set[str]) -> dict[str, Any]:
        """Rename the metrics of a model as the user requested.

        Args:
          losses: the names of those metrics that report the loss of one output. They stay
            unchanged.

        Raises:
          InvalidSetting: metric_names_map lacks a metric, or names a loss or a metric that the
            model does not have.
        """
        if not self.metrics:
            return dict(results)
        expected = [name for name in results if name not in losses]
        missing = [name for name in expected if name not in self.metrics]
        unknown = [name for name in self.metrics if name not in expected]
        if missing or unknown:
            problems = [
                f"{', '.join(names)} {problem}"
                for names, problem in ((missing, "is missing"), (unknown, "is not a metric"))
                if names
            ]
            raise InvalidSetting(
                f"metric_names_map has the keys {', '.join(self.metrics)}, and the model has the "
                f"metrics {', '.join(expected) or 'none'}: {'; '.join(problems)}. Name each "
                f"metric once, and no loss."
            )
        return {self.metrics.get(name, name): result for name, result in results.items()}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any] | None:
        """Build the export outputs of a model.

        Returns:
          Signature name → tf.estimator export output. None if the option export_outputs is None or
          empty: the export then has only the default signature.
        """
        if not self.outputs:
            return None
        self.check_output_names(list(predictions))
        own = {name: kind(predictions[name]) for name, kind in self.outputs.items()}
        return {_DEFAULT_SIGNATURE: PredictOutput(dict(predictions)), **own}

    def check_output_names(self, names: list[str]) -> None:
        """Check that the model has every output that export_outputs names."""
        unknown = [name for name in self.outputs or {} if name not in names]
        if unknown:
            raise MissingKey(
                f"export_outputs has the keys {', '.join(self.outputs or {})}, and the model has "
                f"the outputs {', '.join(names)}: {', '.join(unknown)} is not an output. Use "
                f"names of the model's outputs; the signature serving_default always exists."
            )
