"""Builds the wheel with uv, installs it in an empty environment, and asks the sample model there.

    python -m tools.check_wheel [--constraint constraints.txt]

Checks the metadata of the wheel and of the source distribution with twine, runs `tpuserve --help`,
and sends the README's request to `tpuserve serve --sample`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

from server.sample import digits
from tests.processes import free_ports

_ROOT = Path(__file__).parents[1]
# Catches a hang. The installation takes a minute on an idle machine.
_TIMEOUT_SECONDS = 1200


def _run_command(*command: str | Path) -> str:
    """Run a command, and return its standard output; raise CalledProcessError if it fails."""
    print("$", *command, flush=True)
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_SECONDS
    ).stdout


def _ask_sample(command: Path) -> int:
    """Start the sample model, send it the README's request, and return the digit."""
    rpc_port, rest_port = free_ports(2)
    flags = ["--host=127.0.0.1", f"--port={rpc_port}", f"--rest_api_port={rest_port}"]
    with subprocess.Popen(
        [command, "serve", "--sample", *flags], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            log = ""
            for line in process.stderr:
                log += line
                if "server.app: ready" in line:
                    break
            else:
                sys.exit(f"the server ended before it was ready:\n{log}")
            url = f"http://127.0.0.1:{rest_port}/v1/models/{digits.NAME}:predict"
            with urllib.request.urlopen(url, digits.REQUEST.encode(), timeout=60) as answer:
                digit: int = json.load(answer)["predictions"][0]["digit"]
        finally:
            process.terminate()
    return digit


def main(constraint: str | None) -> None:
    """Build, check, install and try the wheel; exit with an error if a step fails."""
    with tempfile.TemporaryDirectory() as directory:
        _run_command(sys.executable, "-m", "uv", "build", "--out-dir", f"{directory}/dist", _ROOT)
        # uv also writes a .gitignore.
        distributions = sorted(Path(directory, "dist").glob("tpuserve-*"))
        _run_command(sys.executable, "-m", "twine", "check", "--strict", *distributions)
        (wheel,) = (path for path in distributions if path.suffix == ".whl")
        venv.create(f"{directory}/venv", with_pip=True)
        binaries = Path(directory, "venv", "bin")
        constraints = ["--constraint", constraint] if constraint else []
        _run_command(binaries / "pip", "install", "--quiet", *constraints, wheel)
        assert "serve" in _run_command(binaries / "tpuserve", "--help")
        digit = _ask_sample(binaries / "tpuserve")
        if digit != 3:
            sys.exit(f"The sample model answers {digit} to the picture of a 3.")
        print(f"{wheel.name}: the sample model reads a {digit}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--constraint", help="file of versions to install; default: the newest")
    main(parser.parse_args().constraint)
