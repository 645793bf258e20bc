"""A fake model whose classes, scores and values depend on the length of each example."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from server.metrics import Metrics
from server.models.manager import Manager
from server.servables.servable import Array
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel, spec
from tests.server.waiting_data_plane import WaitingDataPlane
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD, Signature

EXAMPLES = {"inputs": spec("string", "examples")}
CLASSES = {"classes": spec("string", "classes"), "scores": spec("float32", "scores")}

classify = Signature(EXAMPLES, CLASSES, CLASSIFY_METHOD)
regress = Signature(EXAMPLES, {"outputs": spec("float32", "outputs")}, REGRESS_METHOD)


def strings(*rows: Sequence[bytes]) -> Array:
    array = np.empty((len(rows), len(rows[0])), object)
    for row, values in enumerate(rows):
        array[row] = list(values)
    return array


class ExamplesModel(FakeModel):
    """Scores "short" 1 / length and "long" 1 - 1 / length; the value of an example is its length.

    Attributes:
      outputs: alias → array that is returned instead of the computed output.
      runs: the name of the signature of each run so far.
    """

    signatures: Mapping[str, Signature] = {
        "serving_default": classify,
        "regress": regress,
        "column": regress,
        "scores": Signature(EXAMPLES, {"scores": CLASSES["scores"]}, CLASSIFY_METHOD),
    }

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[str, Array] = {}
        self.runs: list[str] = []

    def _run(self, signature_name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.runs.append(signature_name)
        lengths = np.array([len(text) for text in inputs["inputs"]], np.float32)
        outputs: dict[str, Array] = {
            "classes": strings(*[[b"short", b"long"]] * len(lengths)),
            "scores": np.stack([1 / lengths, 1 - 1 / lengths], axis=1),
            "outputs": lengths[:, None] if signature_name == "column" else lengths,
        }
        return {**outputs, **self.outputs}


def serve(
    model: FakeModel, *, metrics: Metrics | None = None, check_method_names: bool = False
) -> WaitingDataPlane:
    """Return a data plane with the model as version 3 of "m"."""
    manager = Manager(lambda directory: model)
    aspire(manager, "m", {3: Path("/models/m/3")})
    return WaitingDataPlane(manager, metrics=metrics, check_method_names=check_method_names)
