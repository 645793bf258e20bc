"""What all tests share: a quiet TensorFlow, and none at all for fast tests."""

import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A developer's emulated TPU must not change what the tests see.
os.environ.pop("TPUSERVE_EMULATED_TPU", None)
os.environ.pop("TF_CONFIG", None)


@pytest.fixture(autouse=True)
def _no_tensorflow_in_fast_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    was_there = "tensorflow" in sys.modules
    yield
    if request.node.get_closest_marker("slow") is None and not was_there:
        assert "tensorflow" not in sys.modules, "it imports TensorFlow: mark it slow"
