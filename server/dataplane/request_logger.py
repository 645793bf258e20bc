"""The interface of the request log, through which the data plane logs requests."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from server.dataplane.model_spec import ModelSpec
from server.dataplane.results import Classification, Prediction, Regression
from server.servables.servable import Array


class RequestLogger(Protocol):
    """Logs requests with their answers. No method raises an error or blocks."""

    def should_log(self, model: str) -> bool:
        """Return whether to log the current request of a model, by random sampling."""

    def predict(
        self, answer: Prediction, inputs: Mapping[str, Array], output_filter: Sequence[str]
    ) -> None:
        """Log a Predict request.

        Args:
          inputs: alias → array, with the shape and the dtype of the request.
          output_filter: the aliases of the requested outputs; empty for all outputs.
        """

    def classify(self, answer: Classification, examples: Sequence[bytes]) -> None:
        """Log a Classify request: its answer, and its serialised tf.train.Example messages."""

    def regress(self, answer: Regression, examples: Sequence[bytes]) -> None:
        """Log a Regress request: its answer, and its serialised tf.train.Example messages."""

    def multi_inference(
        self,
        tasks: Sequence[tuple[ModelSpec, str]],
        answers: Sequence[Classification | Regression],
        examples: Sequence[bytes],
    ) -> None:
        """Log a MultiInference request."""
