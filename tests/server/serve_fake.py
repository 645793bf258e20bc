"""Serves a fake model over REST in a process of its own.

Arguments: BASE_PATH PORT LOAD_SECONDS RUN_SECONDS GRACE_SECONDS PLATFORM_CONFIG_FILE.
If RUN_SECONDS is "until let", each request waits for a line of standard input instead.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from server import app
from server.admission.cancellation import Cancellation
from server.config.settings import Settings
from server.servables.servable import Array
from tests.server.fakes import FakeModel


class TalkingModel(FakeModel):
    """Prints "in flight" when a request arrives, and then waits as RUN_SECONDS says."""

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        print("in flight", flush=True)
        if sys.argv[4] == "until let":
            sys.stdin.readline()
        else:
            time.sleep(float(sys.argv[4]))
        return super().run(
            signature_name,
            inputs,
            output_names,
            timeout_ms=timeout_ms,
            cancellation=cancellation,
        )


def load_model(directory: Path) -> FakeModel:
    print("loading", flush=True)
    # Sleep only briefly at a time, because a signal that arrives just before a sleep does not end
    # it.
    ready = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < ready:
        time.sleep(0.05)
    return TalkingModel()


if __name__ == "__main__":
    settings = Settings(
        Path(sys.argv[1]),
        "half",
        0,
        int(sys.argv[2]),
        "127.0.0.1",
        shutdown_grace_seconds=int(sys.argv[5]),
        platform_config_file=sys.argv[6],
    )
    app.run(settings, load_model)
