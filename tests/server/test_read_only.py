"""A server needs no writable file system, not even for temporary files."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests import models, processes
from tests.server import certificates

pytestmark = pytest.mark.slow

# A shell script that makes every file system in a new mount namespace read-only, and then runs its
# arguments as a command.
READ_ONLY = """
for directory in $(awk '$5 !~ "^/(proc|sys)" {print $5}' /proc/self/mountinfo | sort -r); do
  mount -o remount,bind,ro "$directory" 2> /dev/null
done
! touch /tmp/probe /var/tmp/probe /dev/shm/probe 2> /dev/null || exit 99
exec "$@"
"""


def read_only(*command: str) -> list[str]:
    return ["unshare", "--mount", "bash", "-c", READ_ONLY, "bash", *command]


@pytest.fixture(scope="module", autouse=True)
def _needs_mount_namespaces() -> None:
    if subprocess.run(read_only("true"), check=False, capture_output=True).returncode:
        pytest.skip("this user may not make file systems read-only")


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.export(models.half_plus_two, tmp_path_factory.mktemp("half")).parent


def test_server_of_a_read_only_system_serves(base_path: Path, tmp_path: Path) -> None:
    own = certificates.Authority().identity()
    tls = tmp_path / "ssl.config"
    key, certificate = (pem.decode().replace("\n", "\\n") for pem in (own.key, own.certificate))
    tls.write_text(f'server_key: "{key}" server_cert: "{certificate}"')
    rest, rpc = processes.free_ports(2)
    process = subprocess.Popen(
        read_only(
            *(sys.executable, "-m", "tpuserve", "serve", f"--model_base_path={base_path}"),
            *("--host=127.0.0.1", f"--rest_api_port={rest}", f"--port={rpc}"),
            f"--ssl_config_file={tls}",
        ),
        env={**os.environ, "TMPDIR": str(tmp_path / "absent")},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        log = []
        for line in process.stderr:
            log.append(line)
            if line.endswith(" ready\n"):
                break
        else:
            raise AssertionError("".join(log))
        reply = httpx.post(
            f"https://127.0.0.1:{rest}/v1/models/default:predict",
            json={"instances": [[2.0]]},
            verify=False,
        )
        assert reply.json() == {"predictions": [[3.0]]}
        process.terminate()
        assert process.communicate(timeout=120)[1].endswith("stopped\n")
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_code_that_needs_a_temporary_directory_says_so() -> None:
    program = """
import tempfile
from tpuserve.runtime import serving_import
serving_import.import_tensorflow_for_serving()
tempfile.mkstemp()
"""
    result = subprocess.run(
        read_only(sys.executable, "-c", program), check=False, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "No usable temporary directory found in [" in result.stderr.splitlines()[-1]
