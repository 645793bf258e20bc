"""Settings of all tests: the environment, the order of files, and which files are collected."""

import contextlib
import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preloaded.process import WITHOUT_EXTRAS
from tpuserve.devices import tpu_system
from tpuserve.runtime import gc_control

_SLOW_FILE = re.compile(r"^pytestmark = (\[[^]]*)?pytest\.mark\.slow\b", re.MULTILINE)

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Drop the settings of a developer who emulates a TPU or describes a cluster.
os.environ.pop("TPUSERVE_EMULATED_TPU", None)
os.environ.pop("TF_CONFIG", None)
# Drop the settings of the terminal and of a CI's colours, which would change the output.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
os.environ["TERM"] = "xterm-256color"

# Let no proxy of the machine receive requests to loopback addresses.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
# Let HTTP clients read one certificate in place of all 140 public ones, which takes each client 25
# ms: no test asks a public host.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))
# After each product of matrices, the threads of OpenBLAS wait actively for the next product, and
# take the processors from the other processes that run tests.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# On processors with AVX-512 or newer instructions, TensorFlow rewrites graphs for oneDNN's kernels.
# TensorFlow then searches the list of all kernels for each node, which takes up to a quarter of the
# time of a test that trains. `make test-other-processors` has the kernels on.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# XLA's optimisations of machine code take a fifth of the time of a program that XLA compiles for an
# emulated TPU. `make test-other-processors` has the optimisations on.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# A shell without job control starts background jobs with SIGINT ignored. Processes that tests start
# would inherit this, and Ctrl-C would not interrupt them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_LONGEST = (
    "tests/trainer/compat/test_estimator_programs.py",
    "tests/conformance/exports/test_exports.py",
    "tests/examples/test_demo.py",
    "tests/trainer/keras/test_conversion.py",
    "tests/trainer/backends/tpu/test_failures.py",
    "tests/trainer/backends/tpu/cluster/test_processes.py",
    "tests/trainer/hosts/test_training.py",
    "tests/trainer/hosts/test_failures.py",
    "tests/examples/test_examples.py",
    "tests/trainer/backends/tpu/test_signals.py",
    "tests/tpuserve/compilation/test_aot.py",
    "tests/conformance/test_replicated_training.py",
    "tests/trainer/compat/test_keras_question.py",
    "tests/trainer/compat/test_documented_programs.py",
    "tests/server/test_serve.py",
    "tests/trainer/backends/tpu/cluster/test_session.py",
    "tests/documents/test_migrate.py",
    "tests/trainer/keras/test_optimizers.py",
    "tests/trainer/train_eval/test_api.py",
    "tests/documents/test_serve.py",
    "tests/documents/test_train.py",
    "tests/documents/test_tpu.py",
    "tests/trainer/keras/test_fit.py",
    "tests/conformance/test_exact_training.py",
    "tests/documents/test_export.py",
    "tests/documents/test_convert.py",
    "tests/tpuserve/commands/test_convert.py",
)
"""The files that take longest, longest first. They start first, so that none runs alone last."""


_WITH_EXTRAS = (
    "tests/clusters",
    "tests/conformance/exports",
    "tests/documents/test_serve.py",
    "tests/documents/test_export.py",
    "tests/documents/test_tpu.py",
    "tests/documents/test_train.py",
    "tests/tpuserve/commands/test_compile.py",
    "tests/tpuserve/commands/test_compile_train.py",
    "tests/tpuserve/commands/test_convert.py",
    "tests/tpuserve/commands/test_doctor.py",
    "tests/tpuserve/compilation",
    "tests/tpuserve/diagnosis",
    "tests/trainer/estimator/test_compile_train_step.py",
    "tests/trainer/backends/tpu/test_signals.py",
    "tests/trainer/hosts",
    "tests/tpuserve/pjrt/test_executable_cache.py",
    "tests/tpuserve/runtime/pjrt",
    "tests/trainer/keras/model/test_unsupported_options.py",
)
"""Directories and files with tests whose processes need jax or matplotlib."""
_PYTHONPATH = os.environ.get("PYTHONPATH", "")

# Keep the executables of trainings out of the user's cache directory.
os.environ["TPUSERVE_XLA_CACHE_DIR"] = "off"


def pytest_configure(config: pytest.Config) -> None:
    """Build Matplotlib's cache of fonts, before the processes that run tests are started.

    A command that builds the cache in a test may print a line about that, which no document shows.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker or config.getoption("markexpr") == "not slow":
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("matplotlib.font_manager")
        cache_directory = importlib.import_module("matplotlib").get_cachedir()
        os.environ.setdefault("MPLCONFIGDIR", cache_directory)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hide the optional packages from the processes that a test and its fixtures start."""
    path = item.path.relative_to(item.config.rootpath).as_posix()
    hidden = "" if path.startswith(_WITH_EXTRAS) else WITHOUT_EXTRAS
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [hidden, _PYTHONPATH]))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Import all tests without garbage collections, which would scan TensorFlow's objects.

    Afterwards, make full collections a tenth as frequent: each scans the objects of all tests so
    far, which takes half a second.
    """
    with gc_control.gc_disabled():
        yield
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, 10 * full)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move the tests of the longest files to the beginning, in the order of the list."""
    ranks = {config.rootpath / path: rank for rank, path in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files in which -m "not slow" or -m numeric selects no test.

    Importing such files takes long, because most of them import TensorFlow.
    """
    kind = config.getoption("markexpr")
    if collection_path.suffix != ".py" or kind not in ("not slow", "numeric"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    has_none = _SLOW_FILE.search(text) if kind == "not slow" else "pytest.mark.numeric" not in text
    return True if has_none else None


@pytest.fixture(autouse=True)
def _no_tensorflow_in_fast_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    was_there = "tensorflow" in sys.modules
    yield
    if request.node.get_closest_marker("slow") is None and not was_there:
        assert "tensorflow" not in sys.modules, "it imports TensorFlow: mark it slow"


@pytest.fixture(autouse=True)
def _no_emulated_tpu_is_left() -> Iterator[None]:
    """Check that a test ends the emulations that it starts, which later tests would run on."""
    before = tpu_system._emulated_in_process
    yield
    assert tpu_system._emulated_in_process is before, "the test leaves an emulated TPU behind"
