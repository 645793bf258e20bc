"""Runs the programs in programs/ and reads the files that the programs write."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.util import event_pb2

from tests.preloaded import process as preloaded_process
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader

PROGRAMS = Path(__file__).parent / "programs"
_ROOT = Path(__file__).parents[3]

Scalars = dict[str, dict[int, float]]


def run_program(
    program: str, *flags: object, cores: int = 0, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program with `tpuserve run`, check that it succeeds, and return its output.

    Args:
      program: the path of the program below programs/.
      flags: the flags of the program.
      cores: the number of cores of the emulated TPU; 0 for no TPU.
      environment: the environment variables. None means those of this process.
    """
    options = ["--emulate-tpu", str(cores)] if cores else []
    arguments = ["-m", "tpuserve.run", *options, str(PROGRAMS / program), *map(str, flags)]
    return _output(preloaded_process.run_preloaded(arguments, cwd=_ROOT, env=environment))


def run_with_python(program: str, *flags: object, cores: int) -> str:
    """Run a program with Python itself, check that it succeeds, and return its output."""
    process = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *map(str, flags)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=_ROOT,
        env={**os.environ, "TPUSERVE_EMULATED_TPU": str(cores)},
    )
    return _output(process)


def _output(process: "subprocess.CompletedProcess[str]") -> str:
    assert process.returncode == 0, process.stderr[-8000:]
    return process.stdout


def read_scalars(directory: Path) -> Scalars:
    """Return the scalar summaries in a directory, of either TensorFlow version.

    Returns:
      Tag → step → value.
    """
    scalars: Scalars = {}
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
                scalars.setdefault(value.tag, {})[event.step] = number
    return scalars


def find_newest_export(base: Path) -> Path:
    """Return the newest version directory in a base directory."""
    versions = (path for path in base.iterdir() if path.name.isdigit())
    return max(versions, key=lambda path: int(path.name))


def predict_on_cpu(directory: Path, inputs: dict[str, Any]) -> Any:
    """Return the outputs of the metagraph for CPUs in an export."""
    model = loader.load(directory, tags.SERVE, TpuSystem())
    outputs = model.run("serving_default", inputs)
    model.close()
    return outputs


def make_example_inputs(features: Mapping[str, Sequence[float] | bytes]) -> dict[str, Any]:
    """Return the input of a signature that parses tf.Examples: an array of one tf.Example."""
    example = tf.train.Example()
    for name, value in features.items():
        if isinstance(value, bytes):
            example.features.feature[name].bytes_list.value.append(value)
        else:
            example.features.feature[name].float_list.value.extend(value)
    return {"examples": np.array([example.SerializeToString()], object)}


def write_checkpoint(path: Path, values: Mapping[str, Any]) -> str:
    """Write a checkpoint with the given variables and return the checkpoint's prefix."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=tf.constant(value), use_resource=True)
        session.run(v1.global_variables_initializer())
        return str(v1.train.Saver().save(session, str(path)))
