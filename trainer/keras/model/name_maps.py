"""NameMaps that a program gives to the metrics and the outputs of a Keras model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.tensorflow_internals import PredictOutput

_DEFAULT = "serving_default"


@dataclass(frozen=True)
class NameMaps:
    """What a model's metrics are called, and which signatures its outputs have of their own.

    Source: tensorflow_estimator, keras_lib.py, of which these are the rules.

    Attributes:
      metrics: name in Keras → name in evaluate(), of all metrics but the losses; None for those
        of Keras.
      outputs: name of an output → class of an export output, made of its tensor; None for the
        signature serving_default alone, which has all outputs.
    """

    metrics: Mapping[str, str] | None = None
    outputs: Mapping[str, Callable[[Any], Any]] | None = None

    def __post_init__(self) -> None:
        for option, value in (
            ("metric_names_map", self.metrics),
            ("export_outputs", self.outputs),
        ):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidType(f"{option} is {value!r}. Give a dict, or None.")
        for name, kind in (self.outputs or {}).items():
            if not callable(kind):
                raise InvalidType(
                    f"export_outputs[{name!r}] is {kind!r}. Give a class, as "
                    f"tf.estimator.export.ClassificationOutput, which is called with the output."
                )
        for name, other in (self.metrics or {}).items():
            if other == "loss":
                raise InvalidSetting(
                    f"metric_names_map[{name!r}] is 'loss', which evaluate() has already. Give "
                    f"the metric another name."
                )

    def rename_metrics(self, found: Mapping[str, Any], losses: set[str]) -> dict[str, Any]:
        """The metrics of a model under the names that are wanted.

        Args:
          found: by their names in Keras.
          losses: which of them are losses of single outputs; they keep their names.

        Raises:
          InvalidSetting: a metric has no name, or a name belongs to no metric.
        """
        if not self.metrics:
            return dict(found)
        expected = [name for name in found if name not in losses]
        unnamed = [name for name in expected if name not in self.metrics]
        unknown = [name for name in self.metrics if name not in expected]
        if unnamed or unknown:
            raise InvalidSetting(
                f"metric_names_map has the keys {', '.join(self.metrics)}, and the model has the "
                f"metrics {', '.join(expected) or 'none'}: "
                + "; ".join(
                    f"{', '.join(names)} {what}"
                    for names, what in ((unnamed, "is missing"), (unknown, "is no metric"))
                    if names
                )
                + ". Name each metric once, and no loss."
            )
        return {self.metrics.get(name, name): each for name, each in found.items()}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any] | None:
        """The export outputs of a model; None for the default alone.

        Raises:
          InvalidSetting: a name belongs to no output.
        """
        if not self.outputs:
            return None
        self.check_output_names(list(predictions))
        own = {name: kind(predictions[name]) for name, kind in self.outputs.items()}
        return {_DEFAULT: PredictOutput(dict(predictions)), **own}

    def check_output_names(self, names: list[str]) -> None:
        """Refuses names that belong to no output.

        Raises:
          InvalidSetting: names one.
        """
        unknown = [name for name in self.outputs or {} if name not in names]
        if unknown:
            raise InvalidSetting(
                f"export_outputs has the keys {', '.join(self.outputs or {})}, and the model has "
                f"the outputs {', '.join(names)}: {', '.join(unknown)} is none of them. Name "
                f"outputs of the model; serving_default is there without a word."
            )
