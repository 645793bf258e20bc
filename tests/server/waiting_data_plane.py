"""A data plane whose inference methods wait for the answer."""

from typing import Any

from server.dataplane import Classification, DataPlane, Prediction, Regression
from server.request import RequestContext
from server.servables import pending


class WaitingDataPlane(DataPlane):
    """A data plane with a method that waits for each method that begins an inference."""

    def predict(self, *arguments: Any, context: RequestContext | None = None) -> Prediction:
        return pending.wait(self.start_predict(context or RequestContext(), *arguments))

    def classify(self, *arguments: Any, context: RequestContext | None = None) -> Classification:
        return pending.wait(self.start_classify(context or RequestContext(), *arguments))

    def regress(self, *arguments: Any, context: RequestContext | None = None) -> Regression:
        return pending.wait(self.start_regress(context or RequestContext(), *arguments))

    def multi_inference(
        self, *arguments: Any, context: RequestContext | None = None
    ) -> list[Classification | Regression]:
        return pending.wait(self.start_multi_inference(context or RequestContext(), *arguments))
