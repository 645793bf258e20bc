"""What all tests share: a quiet TensorFlow, and none at all for fast tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SLOW_FILE = "\npytestmark = pytest.mark.slow\n"

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A developer's emulated TPU must not change what the tests see.
os.environ.pop("TPUSERVE_EMULATED_TPU", None)
os.environ.pop("TF_CONFIG", None)
# Nor must what the terminal is like, or a CI that likes colours.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
os.environ["TERM"] = "xterm-256color"

# The machine's proxy, if there is one, is not for loopback addresses.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files of slow tests alone when only fast ones are run: they import TensorFlow."""
    is_slow = collection_path.suffix == ".py" and _SLOW_FILE in collection_path.read_text()
    return True if is_slow and config.getoption("markexpr") == "not slow" else None


@pytest.fixture(autouse=True)
def _no_tensorflow_in_fast_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    was_there = "tensorflow" in sys.modules
    yield
    if request.node.get_closest_marker("slow") is None and not was_there:
        assert "tensorflow" not in sys.modules, "it imports TensorFlow: mark it slow"
