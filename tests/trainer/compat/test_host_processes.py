import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

pytestmark = pytest.mark.slow

COUNT = "--xla_force_host_platform_device_count"

WAIT = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5 + int(os.environ["TPUSERVE_HOST_INDEX"])))
print("ready", flush=True)
print("ready", file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


def script(tmp_path: Path, text: str) -> str:
    file = tmp_path / "program.py"
    file.write_text(text)
    return str(file)


def test_each_process_is_a_host_and_only_the_first_has_the_standard_output(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import os, sys\n"
        "print(os.environ['TPUSERVE_HOST_INDEX'], len(os.environ['TPUSERVE_HOSTS'].split(',')))\n"
        "print(os.environ['XLA_FLAGS'], sys.argv[1:], file=sys.stderr)\n",
    )
    finished = processes.run_tpuserve(
        "run",
        "--processes",
        "2",
        "--cores",
        "3",
        program,
        "--steps=7",
        XLA_FLAGS=f"--xla_a=1 {COUNT}=8",
    )
    assert finished.returncode == 0
    assert finished.stdout == "0 2\n"
    flags = f"--xla_a=1 {COUNT}=3 ['--steps=7']"
    assert sorted(finished.stderr.splitlines()) == [f"[0] {flags}", f"[1] {flags}", "[1] 1 2"]


def test_the_status_is_that_of_the_process_that_failed(tmp_path: Path) -> None:
    program = script(
        tmp_path, "import os, sys\nsys.exit(3 * int(os.environ['TPUSERVE_HOST_INDEX']))\n"
    )
    assert processes.run_tpuserve("run", "--processes", "2", program).returncode == 3


def test_a_signal_reaches_every_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpuserve", "run", "--processes", "2"]
    process = subprocess.Popen(
        [*command, script(tmp_path, WAIT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stderr is not None
        # After three lines, one of process 0 and two of process 1, both processes are ready.
        lines = [process.stderr.readline() for _ in range(3)]
        assert sorted(lines) == ["[0] ready\n", "[1] ready\n", "[1] ready\n"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (5, 6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--cores", "4"], "--cores was given without --processes"),
        (["--hosts", "a,b"], "--hosts and --host-index were not given together"),
        (["--host-index", "1"], "--hosts and --host-index were not given together"),
        (
            ["--processes", "2", "--emulate-tpu", "8"],
            "--emulate-tpu and --processes were given. Give one of them",
        ),
        (
            ["--hosts", "a,b", "--host-index", "0", "--emulate-tpu", "8"],
            "--emulate-tpu and --hosts were given",
        ),
        (["--hosts", "a,b", "--host-index", "2"], "the number of this host, from 0 to 1"),
        (["--hosts", "a:x,b", "--host-index", "1"], "The address of host 0 in TPUSERVE_HOSTS"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    options: list[str], text: str, tmp_path: Path
) -> None:
    finished = processes.run_tpuserve("run", *options, script(tmp_path, "print('ran')\n"))
    assert finished.returncode in (1, 2)
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    assert text in finished.stderr
