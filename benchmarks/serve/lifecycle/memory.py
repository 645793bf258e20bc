"""Measures the memory of a server that repeatedly loads and unloads a large model.

    python -m benchmarks.serve.lifecycle.memory [--megabytes 200] [--cycles 20] [--without malloc]

The server is a subprocess that also serves a small model. Each cycle loads the large model with
HandleReloadConfigRequest, sends one request, and unloads the model. The benchmark prints the
resident memory of the server before the first load and after each cycle, and how much the server
keeps of the large model: the difference of the last size to the size before the first load.
--without malloc leaves the thresholds of glibc's malloc as they are.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from benchmarks.serve.lifecycle.stalls import PARTS
from server.process import ports

v1 = tf.compat.v1

# The number of variables of a model. Several variables take several blocks of memory.
_VARIABLES = 10
_MODEL, _SMALL = "large", "small"
_HOST = "127.0.0.1"
# How long to watch the memory after a version has reached the state END, in seconds: the server
# returns its pages to the operating system only afterwards.
_SETTLED_SECONDS = 1.0


def main() -> None:
    """Measure, and print the resident memory after each cycle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--without", action="append", choices=sorted(PARTS), default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        save_model(Path(base) / _MODEL / "1", arguments.megabytes)
        save_model(Path(base) / _SMALL / "1", 1)
        sizes = measure(Path(base), arguments.cycles, arguments.without)
    before, *after = sizes
    print(f"before the first load: {before:8.1f} MB")
    for cycle, size in enumerate(after, 1):
        print(f"cycle {cycle:3}: {size:8.1f} MB")
    growth = sizes[-1] - before
    print(f"after the last / before the first load: {sizes[-1] / before:.3f}")
    print(f"kept: {growth:.1f} MB, {growth / arguments.megabytes:.2f} of the model")


def save_model(directory: Path, megabytes: int) -> Path:
    """Export a SavedModel whose variables take `megabytes` MiB.

    The model computes y = x + the sum of the first numbers of the variables.
    """
    numbers = megabytes * (1 << 20) // 4 // _VARIABLES
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        y: Any = x
        feeds = {}
        for part in range(_VARIABLES):
            value = v1.placeholder(tf.float32, [numbers])
            variable = v1.get_variable(f"v{part}", initializer=value, validate_shape=False)
            variable.set_shape([numbers])
            feeds[value] = np.full([numbers], part, np.float32)
            y = y + variable[0]
        session.run(v1.global_variables_initializer(), feeds)
        v1.saved_model.simple_save(session, str(directory), {"x": x}, {"y": y})
    return directory


def measure(base: Path, cycles: int, without: Sequence[str] = ()) -> list[float]:
    """Start a server and run all cycles.

    Args:
      base: The directory with the two models.
      cycles: How often the large model is loaded and unloaded.
      without: The parts of the loading to switch off.

    Returns:
      The server's resident MiB before the first load, after a request to the small model, and then
      after each cycle.
    """
    with ports.bind_port(_HOST, 0, "--port") as reserved:
        port = int(reserved.getsockname()[1])
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.serve.lifecycle.stalls", os.devnull),
            *(argument for part in without for argument in ("--without", part)),
            *("serve", f"--host={_HOST}", f"--port={port}"),
            *("--rest_api_port=0", f"--model_name={_SMALL}", f"--model_base_path={base / _SMALL}"),
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        with grpc.insecure_channel(f"{_HOST}:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=120)
            _predict(channel, _SMALL)
            before = _settled_megabytes(process.pid)
            return [before, *(_run_cycle(channel, base, process.pid) for _ in range(cycles))]
    finally:
        process.kill()
        process.wait()


def _run_cycle(channel: grpc.Channel, base: Path, pid: int) -> float:
    """Load, query and unload the large model, and return the server's resident MiB."""
    _configure_models(channel, base, _SMALL, _MODEL)
    _predict(channel, _MODEL)
    _configure_models(channel, base, _SMALL)
    _wait_until_unloaded(channel)
    return _settled_megabytes(pid)


def _predict(channel: grpc.Channel, model: str) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros([1], np.float32)))
    prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)


def _settled_megabytes(pid: int) -> float:
    """Return the least resident MiB of a process within `_SETTLED_SECONDS`."""
    least, end = float("inf"), time.monotonic() + _SETTLED_SECONDS
    while time.monotonic() < end:
        least = min(least, resident_megabytes(pid))
        time.sleep(0.05)
    return least


def _configure_models(channel: grpc.Channel, base: Path, *names: str) -> None:
    """Make the server serve exactly the named models, and wait until new models are loaded."""
    request = model_management_pb2.ReloadConfigRequest()
    for name in names:
        request.config.model_config_list.config.add(
            name=name, base_path=str(base / name), model_platform="tensorflow"
        )
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    status = stub.HandleReloadConfigRequest(request, timeout=300).status
    if status.error_code:
        raise RuntimeError(status.error_message)


def _wait_until_unloaded(channel: grpc.Channel) -> None:
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = _MODEL
    ended = get_model_status_pb2.ModelVersionStatus.END
    while stub.GetModelStatus(request).model_version_status[0].state != ended:
        time.sleep(0.05)


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status contains no VmRSS")


if __name__ == "__main__":
    main()
