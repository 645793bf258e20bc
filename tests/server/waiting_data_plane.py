"""A data plane whose inference methods wait for the answer."""

from typing import Any

from server.dataplane import Classification, DataPlane, Prediction, Regression
from server.servables import pending


class WaitingDataPlane(DataPlane):
    """A data plane with a method that waits for each method that begins an inference."""

    def predict(self, *arguments: Any, **options: Any) -> Prediction:
        return pending.wait(self.start_predict(*arguments, **options))

    def classify(self, *arguments: Any, **options: Any) -> Classification:
        return pending.wait(self.start_classify(*arguments, **options))

    def regress(self, *arguments: Any, **options: Any) -> Regression:
        return pending.wait(self.start_regress(*arguments, **options))

    def multi_inference(self, *arguments: Any, **options: Any) -> list[Classification | Regression]:
        return pending.wait(self.start_multi_inference(*arguments, **options))
