"""The environment of the original: the last TensorFlow that has a TPUEstimator."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

ENVIRONMENT = Path(__file__).parents[2] / ".venv-original"
# The newest Python that TensorFlow 2.15 has wheels for.
PYTHON = "3.11"
# TensorFlow 2.15 is compiled against NumPy 1. Keras, in both environments, imports pandas and
# SciPy where they are installed, as they are in the one for development: half a second.
REQUIREMENTS = (
    "tensorflow==2.15.1",
    "tensorflow-estimator==2.15.0",
    "numpy<2",
    "pandas",
    "scipy",
)


class OriginalNotFound(Exception):
    """The environment is not there and cannot be made."""


def python(console: Console) -> Path:
    """The Python of the original's environment, which is made where it is not there yet.

    Raises:
      OriginalNotFound: there is no Python 3.11, or the packages cannot be installed.
    """
    executable = ENVIRONMENT / "bin" / "python"
    # Written last: half an environment has none.
    stamp = ENVIRONMENT / "requirements.txt"
    wanted = "\n".join(REQUIREMENTS) + "\n"
    if stamp.exists() and stamp.read_text() == wanted and _is_wanted([str(executable)]):
        return executable
    console.print(f"Setting up {ENVIRONMENT.name}, once: {', '.join(REQUIREMENTS)}.")
    base = _find_base()
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    _run([*base, "-m", "venv", str(ENVIRONMENT)])
    pip = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *REQUIREMENTS])
    stamp.write_text(wanted)
    return executable


def _find_base() -> list[str]:
    for command in _candidates():
        if _is_wanted(command):
            return command
    raise OriginalNotFound(
        f"TensorFlow 2.15 needs Python {PYTHON}, and there is none: not python{PYTHON} on PATH, "
        f"not this Python ({sys.version.split()[0]}), not in pyenv's or uv's. Install one, for "
        f"example with `pyenv install {PYTHON}` or `uv python install {PYTHON}`, or name it in "
        f"PYTHON311=/path/to/python{PYTHON}; or leave it out with --only=emulated."
    )


def _candidates() -> Iterator[list[str]]:
    if named := os.environ.get("PYTHON311"):
        yield [named]
    yield [sys.executable]
    # A shim of pyenv's is on PATH even where the version it is for is not chosen.
    yield [f"python{PYTHON}"]
    roots = [os.environ.get("PYENV_ROOT"), str(Path.home() / ".pyenv")]
    for root in filter(None, roots):
        for installed in sorted(Path(root, "versions").glob(f"{PYTHON}.*/bin/python")):
            yield [str(installed)]
    if shutil.which("uv"):
        asked = subprocess.run(["uv", "python", "find", PYTHON], capture_output=True, text=True)
        if asked.returncode == 0:
            yield [asked.stdout.strip()]


def _is_wanted(command: list[str]) -> bool:
    program = "import sys, venv, ensurepip; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        answer = subprocess.run([*command, "-c", program], capture_output=True, text=True)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == PYTHON


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise OriginalNotFound(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
