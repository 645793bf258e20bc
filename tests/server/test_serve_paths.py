"""`tpuserve serve PATH` serves .keras files and exports without flags."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import keras
import numpy as np
import pytest
import tf_keras

import tpuserve
from tests import processes
from tests.processes import ServeProcess

pytestmark = [
    # Keras itself causes the warning when it saves a model.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning"),
]


def save(package: Any, path: Path, *layers: Any) -> None:
    inputs = package.layers.Input([2], name="x")
    dense = package.layers.Dense(1, kernel_initializer="ones")
    package.Sequential([inputs, dense, *layers]).save(path)


class Scale(keras.layers.Layer):  # type: ignore[misc,unused-ignore]
    """A layer whose code is not in the file."""

    def call(self, x: Any) -> Any:
        return 2 * x


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with files of Keras 3 and of tf_keras, and a directory of versions."""
    directory = tmp_path_factory.mktemp("models")
    save(keras, directory / "new.keras")
    save(tf_keras, directory / "old.keras")
    save(keras, directory / "own.keras", Scale())
    (directory / "versions" / "7").mkdir(parents=True)
    shutil.copy(directory / "new.keras", directory / "versions" / "7")
    return directory


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache directory, which all servers of this file share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPUSERVE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def predict(server: ServeProcess, name: str) -> Any:
    url = f"http://{server.rest}/v1/models/{name}:predict"
    answer = httpx.post(url, content='{"instances": [[1, 2]]}', timeout=60)
    return answer.json().get("predictions")


def read_status(server: ServeProcess, name: str) -> Any:
    return httpx.get(f"http://{server.rest}/v1/models/{name}").json()["model_version_status"][0]


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_keras_files_are_served_and_replaced_while_their_server_runs(directory: Path) -> None:
    arguments = ["new.keras", "other=old.keras", "own.keras", "versions"]
    server = ServeProcess(None, flags=[str_of(directory, argument) for argument in arguments])
    try:
        assert [predict(server, name) for name in ("new", "other", "versions")] == 3 * [[[3.0]]]
        assert (
            f"exporting {directory}/old.keras, a file of Keras, for the CPU and the" in server.log
        )
        status = httpx.get(f"http://{server.rest}/v1/models/own").json()["model_version_status"][0]
        assert (status["state"], status["version"]) == ("END", "1")
        assert status["status"]["error_code"] == "FAILED_PRECONDITION"
        assert (
            "own.keras needs the class Scale, which Keras does not have. Export it where its"
            in (status["status"]["error_message"])
        )
        versions = httpx.get(f"http://{server.rest}/v1/models/versions").json()
        assert versions["model_version_status"][0]["version"] == "7"
        # The content of a file that another model has exported is in the cache.
        shutil.copy(directory / "new.keras", directory / "own.keras")
        while predict(server, "own") != [[3.0]]:
            pass
    finally:
        status_of_process, _ = server.stop()
    assert status_of_process == 0


def str_of(directory: Path, argument: str) -> str:
    name, separator, file = argument.rpartition("=")
    return f"{name}{separator}{directory / file}"


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_keras_file_has_a_tpu_metagraph_and_is_exported_once(directory: Path) -> None:
    environment = {"TPUSERVE_EMULATED_TPU": "1"}
    models = {"new": directory / "new.keras"}
    with tpuserve.serve(models, environment=environment) as server, server.client() as client:
        outputs = client.predict("new", {"x": np.array([[1, 2]], np.float32)})
        assert [value.tolist() for value in outputs.values()] == [[[3.0]]]
        assert "new/1: {serve, tpu} on CPU through XLA" in server.log
        assert "exporting" not in server.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no archive", "is no model of Keras that can be read (File is not a zip file). Name a"),
        (None, "is of Keras 2.0.0. Run: pip install tf_keras"),
    ],
    ids=["damaged", "tf_keras"],
)
def test_file_that_cannot_be_exported_ends_the_start_in_one_line(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "m.keras"
    if content is None:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("metadata.json", json.dumps({"keras_version": "2.0.0"}))
        # A package that is found first, and is not there.
        (tmp_path / "sitecustomize.py").write_text(WITHOUT_TF_KERAS)
    else:
        file.write_bytes(content)
    rest, rpc = processes.free_ports(2)
    ended = subprocess.run(
        [sys.executable, "-m", "tpuserve", "serve", str(file), f"--rest_api_port={rest}"]
        + [f"--port={rpc}", f"--model_cache_dir={tmp_path / 'cache'}"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"Error: {file} {reason}")
    assert "Traceback" not in ended.stderr


WITHOUT_TF_KERAS = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name == "tf_keras" else find_spec(name, *rest)
)
"""
