"""Serves a fake model, which a request for 13 kills, with two frontend processes.

Arguments: BASE_PATH GRPC_PORT REST_PORT CONFIG_FILE.
"""

import ctypes
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from server import app
from server.admission.cancellation import Cancellation
from server.config.settings import Settings
from server.servables.servable import Array
from tests.server.fakes import FakeModel


class MortalModel(FakeModel):
    """Dies of the input 13."""

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
            # Read the address 0, because a signal from `os.kill` may come after the answer.
            ctypes.string_at(0)
        return super().run(signature_name, inputs, output_names)


def load(directory: Path) -> FakeModel:
    return MortalModel()


if __name__ == "__main__":
    settings = Settings(
        Path(sys.argv[1]),
        "half",
        int(sys.argv[2]),
        int(sys.argv[3]),
        "127.0.0.1",
        monitoring_config_file=sys.argv[4],
        frontend_processes=2,
    )
    app.run(settings, load)
