"""Serves a fake model that crashes its process if the input is 13.

The argument is a JSON object with the settings of the server: name → value.
"""

import ctypes
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from server import app
from server.admission.cancellation import Cancellation
from server.config.flags import settings_from_flags
from server.servables.servable import Array
from tests.server.fakes import FakeModel


class MortalModel(FakeModel):
    """Crashes the process if the input is 13."""

    choice: Any = SimpleNamespace(tags=frozenset({"serve"}), device="CPU")

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        if signature_name == "serving_default" and 13 in inputs["x"]:
            # Crash by reading the address 0: a signal from `os.kill` may arrive after the answer is
            # sent.
            ctypes.string_at(0)
        return super().run(signature_name, inputs, output_names)


def load_model(directory: Path) -> FakeModel:
    return MortalModel()


if __name__ == "__main__":
    app.run(settings_from_flags(json.loads(sys.argv[1])), load_model)
