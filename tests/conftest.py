"""Settings of all tests: the environment, the order of files, and which files are collected."""

import contextlib
import gc
import importlib
import operator
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preloaded.process import WITHOUT_EXTRAS
from tpuserve.devices import tpu_system
from tpuserve.runtime import gc_control

_SLOW_FILE = re.compile(r"^pytestmark = (\[[^]]*)?pytest\.mark\.(slow|nightly)\b", re.MULTILINE)
_QUICK = "not slow and not nightly"
"""What `pytest` selects by default: see pyproject.toml."""
_PROCESSOR_S = "processor_s"
_PROMISES = "tests/conformance/"
"""Here stands the one proof of each promise that `make test` has, which may take seconds."""

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
# A shell without job control starts background jobs with SIGINT ignored. Processes that tests start
# would inherit this, and Ctrl-C would not interrupt them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_WITH_EXTRAS = (
    "tests/clusters",
    "tests/conformance/exports",
    "tests/test_gpu_check.py",
    "tests/documents/test_serve.py",
    "tests/documents/test_clusters.py",
    "tests/documents/test_export.py",
    "tests/documents/test_readme.py",
    "tests/documents/test_tpu.py",
    "tests/documents/test_train.py",
    "tests/tpuserve/commands/test_compile.py",
    "tests/tpuserve/commands/test_compile_train.py",
    "tests/tpuserve/commands/test_convert.py",
    "tests/tpuserve/commands/test_doctor.py",
    "tests/tpuserve/commands/test_import_ops.py",
    "tests/tpuserve/compilation",
    "tests/tpuserve/diagnosis",
    "tests/trainer/compat/test_contrib_programs.py",
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
    """Let files that the command line names run whole, and build Matplotlib's cache of fonts.

    A command that builds the cache in a test may print a line about that, which no document shows.
    """
    if config.option.markexpr == _QUICK and all(".py" in argument for argument in config.args):
        config.option.markexpr = ""
    if hasattr(config, "workerinput"):
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first, so that none runs alone last."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files in which -m selects no test: importing them takes long."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    expression = config.getoption("markexpr")
    if expression == _QUICK:
        return True if _SLOW_FILE.search(text) else None
    kind = re.match(r"(?:slow|nightly|numeric)\b", expression)
    return True if kind and f"pytest.mark.{kind[0]}" not in text else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record the processor time of a test."""
    started = _processor_seconds()
    yield
    item.user_properties.append((_PROCESSOR_S, _processor_seconds() - started))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the quick tests over a second of processor time, which belong to another tier.

    None fails by this: the time also depends on the machine, and on which test imports first.
    """
    if config.getoption("markexpr") != _QUICK:
        return
    seconds_of_test = {
        report.nodeid: seconds
        for report in terminalreporter.getreports("passed")
        for name, seconds in report.user_properties
        if name == _PROCESSOR_S and seconds > 1 and not report.nodeid.startswith(_PROMISES)
    }
    if seconds_of_test:
        terminalreporter.section("over a second of processor time: mark slow, or make quicker")
    for nodeid, seconds in sorted(seconds_of_test.items(), key=operator.itemgetter(1)):
        terminalreporter.line(f"{seconds:5.1f} s  {nodeid}")


def _processor_seconds() -> float:
    times = os.times()
    return sum(times[:4])


@pytest.fixture(autouse=True)
def _no_emulated_tpu_is_left() -> Iterator[None]:
    """Check that a test ends the emulations that it starts, which later tests would run on."""
    before = tpu_system._emulated_in_process
    yield
    assert tpu_system._emulated_in_process is before, "the test leaves an emulated TPU behind"
