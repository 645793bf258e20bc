"""`tpuserve.serve` starts a server on free ports, and the server never outlives its parent."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

import tpuserve
from tests import models
from tests.server.storage.web_server import serve_directory
from tpuserve.errors import InvalidSetting, ServerNotStarted

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.export(models.half_plus_two, tmp_path_factory.mktemp("models") / "half").parent


def test_several_models_and_uris_are_served_with_flags_until_the_end_of_the_block(
    base: Path, tmp_path: Path
) -> None:
    protocols: tuple[Literal["rest", "grpc"], ...] = ("rest", "grpc")
    with serve_directory(base.parent) as web_server:
        names: dict[str, str | Path] = {
            "half": base,
            'ha"lf\\é': str(base),
            "file": base.as_uri(),
            "http": f"{web_server.uri}/{base.name}",
        }
        with tpuserve.serve(names, access_log=True, model_cache_dir=tmp_path) as server:
            for protocol in protocols:
                with server.client(protocol) as client:
                    for name in names:
                        assert client.predict(name, {"x": [[1.0]]})["y"].tolist() == [[2.5]]
            assert '"status"' in server.log
            with pytest.raises(InvalidSetting, match="Give 'rest' or 'grpc'"):
                server.client("v2")  # type: ignore[arg-type]
            assert Path(f"/proc/{server.pid}").exists()
        assert not Path(f"/proc/{server.pid}").exists()
        server.stop()
        assert "I server.app: stopped" in server.log


@pytest.mark.parametrize("flags", [{"log_format": "json"}, {"processes": 2}])
def test_server_is_ready_whatever_its_log_looks_like(base: Path, flags: dict[str, Any]) -> None:
    with tpuserve.serve({"half": base}, **flags) as server, server.client() as client:
        assert client.predict("half", {"x": [[1.0]]})["y"].tolist() == [[2.5]]


def test_a_killed_parent_takes_the_server_with_it(base: Path) -> None:
    program = (
        "import os, signal, sys, tpuserve\n"
        "server = tpuserve.serve({'half': sys.argv[1]})\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(base)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        wait_for_end(descriptor)
    finally:
        os.close(descriptor)


def wait_for_end(descriptor: int) -> None:
    import select

    ended, _, _ = select.select([descriptor], [], [], 120)
    assert ended, "the server still runs"


def test_the_error_of_a_server_that_cannot_start_is_raised(tmp_path: Path, base: Path) -> None:
    with pytest.raises(ServerNotStarted, match="status 1 before it was ready") as caught:
        tpuserve.serve({"half": tmp_path / "none"})
    assert str(tmp_path / "none") in str(caught.value)
    with pytest.raises(ServerNotStarted, match="No such option.*--no_such_flag"):
        tpuserve.serve({"half": base}, no_such_flag=1)


def test_arguments_that_serve_sets_itself_are_refused(base: Path) -> None:
    with pytest.raises(InvalidSetting, match="port is given, which tpuserve.serve sets itself"):
        tpuserve.serve({"half": base}, port=8500)
    with pytest.raises(InvalidSetting, match="no model is given"):
        tpuserve.serve({})
