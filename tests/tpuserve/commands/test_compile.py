import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.preloaded.process import PreloadedProcess
from tests.tpuserve.compilation import exports
from tpuserve.cli import cli
from tpuserve.files.disk_cache import ENVIRONMENT_NAME

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("linear")
    return exports.write_model(directory, exports.whole(exports.linear), [None, 16])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ENVIRONMENT_NAME, str(tmp_path / "cache"))
    return tmp_path / "cache"


def run_compile(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compile", *map(str, arguments)], standalone_mode=False)


def test_an_option_takes_several_values(linear: Path) -> None:
    result = run_compile("--topology", "v5e:1x1", "v6e:1x1", "--batch-size", 1, 8, "--json", linear)
    assert result.return_value == 0, result.output
    report = json.loads(result.stdout)
    assert [
        (compilation["topology"], compilation["batch_size"])
        for compilation in report["compilations"]
    ] == [
        ("v5e:1x1", 1),
        ("v6e:1x1", 1),
        ("v5e:1x1", 8),
        ("v6e:1x1", 8),
    ]


def test_a_table_a_plot_and_a_cache_are_written(linear: Path, tmp_path: Path, cache: Path) -> None:
    plot = tmp_path / "plot.png"
    options = ("--topology", "v5e:1x1", "--batch-size", 8, "--jobs", 1)
    result = run_compile(linear, *options, "--plot", plot, "--load", "1:9", "5")
    assert result.return_value == 0, result.output
    assert "v5e:1x1" in result.stdout
    assert "for the request mix --load 1:9 5:1)" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert len(list(cache.rglob("*.json"))) == 1
    assert run_compile(linear, *options, "--no-cache").return_value == 0
    assert len(list(cache.rglob("*.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--batch-size", "1", "--plot", "plot.txt"], "plot.txt has no supported suffix"),
        (["--topology", "v5e:0x1"], "is not a valid TOPOLOGY"),
    ],
)
def test_an_invalid_argument_is_a_one_line_error(
    linear: Path, arguments: list[str], says: str
) -> None:
    result = run_compile(linear, *arguments)
    assert result.exception is not None
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_missing_directory_is_reported_before_tensorflow_is_imported(tmp_path: Path) -> None:
    result = run_compile(tmp_path / "nothing")
    assert "no directory" in str(result.exception)


def test_sigterm_ends_the_worker_processes_too(linear: Path) -> None:
    # So many batch sizes that the compilation still runs when the signal comes.
    sizes = map(str, range(1, 100))
    command = [sys.executable, "-m", "tpuserve", "compile", str(linear), "--no-cache"]
    workers: set[int] = set()
    with PreloadedProcess(
        [*command, "--batch-size", *sizes], stderr=subprocess.PIPE, text=True
    ) as running:
        # A worker process has started once libtpu is mapped into its memory.
        while not workers:
            assert running.poll() is None
            workers = {pid for pid in _children(running.pid) if "libtpu" in _maps(pid)}
            time.sleep(0.05)
        running.terminate()
        assert running.wait(timeout=900) == 143
        assert running.stderr is not None
        assert running.stderr.read() == ""
    # The kernel removes a killed process with a delay, so wait for the end of the workers.
    deadline = time.monotonic() + 60
    while any("libtpu" in _maps(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _children(parent: int) -> list[int]:
    # Ignore errors: threads and processes may end while their files in /proc are read.
    with contextlib.suppress(OSError):
        threads = list(Path(f"/proc/{parent}/task").glob("*/children"))
        direct = [int(pid) for thread in threads for pid in _read_text(thread).split()]
        return direct + [pid for child in direct for pid in _children(child)]
    return []


def _maps(process: int) -> str:
    return _read_text(Path(f"/proc/{process}/maps"))


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
