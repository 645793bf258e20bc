"""Serves a fake model that crashes its process if the input is 13, and takes 3 s if it is 7.

The argument is a JSON object with the settings of the server: name → value.
"""

import ctypes
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from server import supervisor
from server.admission.cancellation import Cancellation
from server.config.flags import settings_from_flags
from server.servables.servable import Array
from tests.server.fakes import FakeModel


class MortalModel(FakeModel):
    """Crashes the process if the input is 13, and sleeps if it is 7."""

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
        if signature_name == "serving_default" and 7 in inputs["x"]:
            time.sleep(3)
        return super().run(signature_name, inputs, output_names)


def load_model(directory: Path) -> FakeModel:
    return MortalModel()


if __name__ == "__main__":
    supervisor.run(settings_from_flags(json.loads(sys.argv[1])), load_model)
