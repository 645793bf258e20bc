"""Installs TensorFlow 2.15, the last TensorFlow with a TPUEstimator, in its own environment."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

ENVIRONMENT = Path(__file__).parents[2] / ".venv-original"
# The newest Python for which TensorFlow 2.15 has wheels.
PYTHON = "3.11"
# TensorFlow 2.15 is compiled against NumPy 1. Keras imports pandas and SciPy if they are installed,
# which takes half a second. Both environments contain pandas and SciPy.
REQUIREMENTS = (
    "tensorflow==2.15.1",
    "tensorflow-estimator==2.15.0",
    "numpy<2",
    "pandas",
    "scipy",
)


class OriginalNotFound(Exception):
    """The environment does not exist and cannot be created."""


def install_original(console: Console) -> Path:
    """Create the environment of TensorFlow 2.15 if the environment does not exist.

    Returns:
      The Python executable of the environment.

    Raises:
      OriginalNotFound: There is no Python 3.11, or the packages cannot be installed.
    """
    executable = ENVIRONMENT / "bin" / "python"
    # The file is written last, so an incomplete environment does not contain the file.
    stamp = ENVIRONMENT / "requirements.txt"
    requirements = "\n".join(REQUIREMENTS) + "\n"
    is_current = stamp.exists() and stamp.read_text() == requirements
    if is_current and _has_required_version([str(executable)]):
        return executable
    console.print(f"Setting up {ENVIRONMENT.name}, once: {', '.join(REQUIREMENTS)}.")
    base = _find_base_python()
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    _run_command([*base, "-m", "venv", str(ENVIRONMENT)])
    pip = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run_command([*pip, *REQUIREMENTS])
    stamp.write_text(requirements)
    return executable


def _find_base_python() -> list[str]:
    for command in _candidate_commands():
        if _has_required_version(command):
            return command
    raise OriginalNotFound(
        f"TensorFlow 2.15 needs Python {PYTHON}, but no Python {PYTHON} was found. Searched: PATH, "
        f"this Python ({sys.version.split()[0]}), pyenv and uv. Install Python {PYTHON}, for "
        f"example with `pyenv install {PYTHON}` or `uv python install {PYTHON}`, set "
        f"PYTHON311=/path/to/python{PYTHON}, or skip TensorFlow 2.15 with --only=emulated."
    )


def _candidate_commands() -> Iterator[list[str]]:
    if named := os.environ.get("PYTHON311"):
        yield [named]
    yield [sys.executable]
    # pyenv puts a shim on PATH even if its version is not selected, so the version is checked.
    yield [f"python{PYTHON}"]
    roots = [os.environ.get("PYENV_ROOT"), str(Path.home() / ".pyenv")]
    for root in filter(None, roots):
        for installed in sorted(Path(root, "versions").glob(f"{PYTHON}.*/bin/python")):
            yield [str(installed)]
    if shutil.which("uv"):
        finished = subprocess.run(["uv", "python", "find", PYTHON], capture_output=True, text=True)
        if finished.returncode == 0:
            yield [finished.stdout.strip()]


def _has_required_version(command: list[str]) -> bool:
    program = "import sys, venv, ensurepip; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        finished = subprocess.run([*command, "-c", program], capture_output=True, text=True)
    except OSError:
        return False
    return finished.returncode == 0 and finished.stdout.strip() == PYTHON


def _run_command(command: list[str]) -> None:
    finished = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if finished.returncode != 0:
        raise OriginalNotFound(f"{' '.join(command)} failed: {finished.stderr.strip()[-500:]}")
