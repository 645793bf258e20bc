"""The interface through which the data plane logs requests; `server.request_log` implements it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from server.dataplane.model_spec import ModelSpec
from server.dataplane.results import Classification, Prediction, Regression
from server.servables.servable import Array


class RequestLogger(Protocol):
    """Logs answered requests. No method raises or blocks."""

    def should_log(self, model: str) -> bool:
        """Return whether to log the request that was just answered."""

    def predict(
        self, answer: Prediction, inputs: Mapping[str, Array], output_filter: Sequence[str]
    ) -> None:
        """Log a Predict request."""

    def classify(self, answer: Classification, examples: Sequence[bytes]) -> None:
        """Log a Classify request."""

    def regress(self, answer: Regression, examples: Sequence[bytes]) -> None:
        """Log a Regress request."""

    def multi_inference(
        self,
        tasks: Sequence[tuple[ModelSpec, str]],
        answers: Sequence[Classification | Regression],
        examples: Sequence[bytes],
    ) -> None:
        """Log a MultiInference request."""
