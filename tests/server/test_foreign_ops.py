"""Models with ops of tensorflow_text and of an own library are served by all protocols."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuserve
from tests import text_models
from tpuserve.client import Client
from tpuserve.export import convert
from tpuserve.local_server.server import LocalServer

pytestmark = [pytest.mark.slow, pytest.mark.first]

TEXTS = ["the greatest film", "A great film"]
WORD_PIECES = [[4, 5, 6, 8, 0, 0, 0, 0], [1, 5, 8, 0, 0, 0, 0, 0]]
SECONDS = 120


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    for name, save in (
        ("bert", text_models.save_bert_like),
        ("pieces", text_models.save_sentencepiece),
        ("triple", text_models.save_triple),
    ):
        (directory / name).mkdir()
        save(directory / name / "1")
    text_models.build_library(directory)
    return directory


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[LocalServer]:
    models = {name: directory / name for name in ("bert", "pieces", "triple")}
    library = directory / "libtriple.so"
    with tpuserve.serve(models, import_ops=[library], processes=2, timeout_s=SECONDS) as server:
        yield server


@pytest.fixture(params=["rest v1", "grpc v1", "rest v2", "grpc v2"])
def client(server: LocalServer, request: pytest.FixtureRequest) -> Iterator[Client]:
    protocol, api = request.param.split()
    with server.client(protocol, api=api) as client:
        yield client


def test_a_classifier_splits_its_texts_into_word_pieces(client: Client) -> None:
    answer = client.predict("bert", {"text": TEXTS})
    assert answer["tokens"].tolist() == WORD_PIECES
    np.testing.assert_allclose(answer["scores"].sum(axis=1), [1, 1], rtol=1e-6)


def test_texts_are_split_into_sentence_pieces(client: Client) -> None:
    answer = client.predict("pieces", {"text": ["a film", "great"]})
    pieces = {key: np.asarray(value).tolist() for key, value in answer.items()}
    assert pieces == {"pieces": [[3, 4, -1], [0, 5, 6]]}


def test_every_process_has_the_op_of_the_library(server: LocalServer, client: Client) -> None:
    assert client.predict("triple", {"x": np.array([1, 2.5], np.float32)})["y"].tolist() == [3, 7.5]
    assert server.log.count("libtriple.so; number of its ops: 1") == 2


def test_the_log_says_once_in_each_process_why_tensorflow_text_is_imported(
    server: LocalServer,
) -> None:
    assert server.log.count("/1: imported tensorflow_text, which registers its op ") == 2


def test_a_version_that_comes_later_is_planned_and_loaded_with_its_ops(
    directory: Path, tmp_path: Path
) -> None:
    converted = tmp_path / "converted"
    convert(directory / "bert" / "1", converted)
    base_path = tmp_path / "model"
    shutil.copytree(directory / "triple", base_path)
    with (
        tpuserve.serve(
            {"model": base_path},
            environment={"TPUSERVE_EMULATED_TPU": "1"},
            fallback_to_cpu=True,
            file_system_poll_wait_seconds=0.1,
            import_ops=directory / "libtriple.so",
            timeout_s=SECONDS,
        ) as server,
        server.client() as client,
    ):
        assert "tensorflow_text" not in server.log
        shutil.copytree(converted, tmp_path / "2")
        (tmp_path / "2").rename(base_path / "2")
        deadline = time.monotonic() + SECONDS
        while "AVAILABLE" not in [v.state for v in client.versions("model") if v.version == 2]:
            assert time.monotonic() < deadline, server.log
            time.sleep(0.05)
        answer = client.predict("model", {"text": TEXTS}, version=2)
        assert answer["tokens"].tolist() == WORD_PIECES
        assert server.log.count("imported tensorflow_text, which registers its op") == 1
        assert "prepared in this process" not in server.log


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_ops", "names no_such_ops, and no such Python package is installed"),
        ("/no/lib.so", "names the library /no/lib.so, and there is no such file"),
        ("this", "names this, which registers no ops"),
    ],
)
def test_the_start_ends_with_one_sentence(directory: Path, name: str, text: str) -> None:
    flags = [f"--model_base_path={directory}/triple", "--port=0", "--rest_api_port=18501"]
    result = _run("serve", *flags, f"--import_ops={name}")
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if text in line]
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    assert "Traceback" not in result.stderr


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command: Any = [sys.executable, "-m", "tpuserve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
