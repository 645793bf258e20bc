"""Where a data plane has requests written down; `server.request_log` is one."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from server.dataplane.model_spec import Target
from server.dataplane.results import Classification, Prediction, Regression
from server.servables.servable import Array


class Log(Protocol):
    """Takes requests that were answered; neither raises nor waits."""

    def should_log(self, model: str) -> bool:
        """Whether the request just answered is one to write down."""

    def predict(
        self, answer: Prediction, inputs: Mapping[str, Array], output_filter: Sequence[str]
    ) -> None:
        """Writes down a Predict request."""

    def classify(self, answer: Classification, examples: Sequence[bytes]) -> None:
        """Writes down a Classify request."""

    def regress(self, answer: Regression, examples: Sequence[bytes]) -> None:
        """Writes down a Regress request."""

    def multi_inference(
        self,
        tasks: Sequence[tuple[Target, str]],
        answers: Sequence[Classification | Regression],
        examples: Sequence[bytes],
    ) -> None:
        """Writes down a MultiInference request."""
