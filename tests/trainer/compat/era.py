"""Runs the programs of programs/, and reads what they leave behind."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.util import event_pb2

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader

PROGRAMS = Path(__file__).parent / "programs"
_ROOT = Path(__file__).parents[3]

Scalars = dict[str, dict[int, float]]


def run(program: str, *flags: object, cores: int = 0) -> str:
    """What a program prints when `tpuserve run` runs it to a good end.

    Args:
      program: its path below programs/.
      flags: its own.
      cores: of the emulated TPU; 0 for none.
    """
    options = ["--emulate-tpu", str(cores)] if cores else []
    return _output(["-m", "tpuserve.run", *options, str(PROGRAMS / program), *map(str, flags)], {})


def run_by_python(program: str, *flags: object, cores: int) -> str:
    """What a program prints that Python itself runs to a good end."""
    return _output(
        [str(PROGRAMS / program), *map(str, flags)], {"TPUSERVE_EMULATED_TPU": str(cores)}
    )


def _output(arguments: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=_ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return done.stdout


def scalars(directory: Path) -> Scalars:
    """What is summarised in a directory, of either version: tag → step → value."""
    found: Scalars = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    number = value.simple_value
                elif kind == "tensor" and value.tensor.dtype == tf.float32.as_datatype_enum:
                    number = float(tf.make_ndarray(value.tensor))
                else:
                    continue
                found.setdefault(value.tag, {})[event.step] = number
    return found


def export_in(base: Path) -> Path:
    """The newest version directory below another."""
    return max((each for each in base.iterdir() if each.name.isdigit()), key=lambda v: int(v.name))


def answer(directory: Path, inputs: dict[str, Any]) -> Any:
    """The outputs of the metagraph for CPUs."""
    model = loader.load(directory, tags.SERVE, TpuSystem())
    outputs = model.run("serving_default", inputs)
    model.close()
    return outputs


def example(features: Mapping[str, Sequence[float] | bytes]) -> dict[str, Any]:
    """The input of a signature that parses tf.Examples: one of them."""
    made = tf.train.Example()
    for name, value in features.items():
        if isinstance(value, bytes):
            made.features.feature[name].bytes_list.value.append(value)
        else:
            made.features.feature[name].float_list.value.extend(value)
    return {"examples": np.array([made.SerializeToString()], object)}


def write_checkpoint(path: Path, values: Mapping[str, Any]) -> str:
    """Writes a checkpoint of some variables, and says what to call it."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=tf.constant(value), use_resource=True)
        session.run(v1.global_variables_initializer())
        return str(v1.train.Saver().save(session, str(path)))
