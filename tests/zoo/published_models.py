"""Models that Python packages contain, with their trained weights."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np

from tests.zoo.zoo_model import Inputs, ZooModel, normal


def _package(name: str, inside: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed: `make zoo` installs it.")
    return Path(spec.origin).parent / inside


def _write_basic_pitch(directory: Path) -> None:
    shutil.copytree(_package("basic_pitch", "saved_models/icassp_2022/nmp"), directory)


def _write_guesslang(directory: Path) -> None:
    shutil.copytree(_package("guesslang", "data/model"), directory)


def _programs(rows: int) -> Inputs:
    lines = [b"def main():\n    print(1)\n", b"int main() { return 0; }\n", b"SELECT a FROM b;\n"]
    return {"content": np.array([lines[row % 3] * (row + 1) for row in range(rows)], object)}


ALL = (
    ZooModel(
        "basic-pitch 0.4.0",
        "Keras of TensorFlow 2.4",
        _write_basic_pitch,
        normal("input_2", 43844, 1),
    ),
    ZooModel(
        "guesslang 2.2.1",
        "an Estimator of TensorFlow 2.5",
        _write_guesslang,
        _programs,
        signature="predict",
    ),
)
