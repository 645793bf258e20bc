"""Runs NVIDIA's perf_analyzer, a C++ client that measures model servers, and reads its report.

The wheels of tritonclient 2.46 to 2.50 contain the program. `make .venv-perf/stamp` installs one of
them and CUDA's runtime, 17.5 MB in all. The program needs Debian's package libb64-0d too.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VARIABLE = "TPUSERVE_PERF_ANALYZER"
_SCRIPT = Path(__file__).with_suffix(".sh")
# The exit status if the windows do not agree.
_NOT_STABLE = 2
# No run takes as long, in seconds.
_TIME_LIMIT = 300


@dataclass(frozen=True)
class Report:
    """The report of a run with one number of clients.

    Attributes:
      is_stable: whether perf_analyzer found three windows in a row that agree. If not, it reports
        nothing, and all numbers are 0.
      num_requests: the requests in these windows, as the client counts them.
      requests_per_second: the same requests per second.
      mean_ms: their mean latency in milliseconds.
      output: the whole output.
    """

    is_stable: bool
    num_requests: int
    requests_per_second: float
    mean_ms: float
    output: str


@cache
def find_perf_analyzer() -> str | None:
    """Return the path of the program; None if there is none that starts.

    The variable TPUSERVE_PERF_ANALYZER has the path, unless the program is on the PATH or in
    .venv-perf.
    """
    path = os.environ.get(VARIABLE) or shutil.which("perf_analyzer") or str(_SCRIPT)
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=_TIME_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else path


def run_perf_analyzer(*arguments: str) -> Report:
    """Run perf_analyzer with one number of clients, and return its report.

    Raises:
      RuntimeError: perf_analyzer is not there or has failed.
    """
    path = find_perf_analyzer()
    if path is None:
        raise RuntimeError("no perf_analyzer starts. Run `make .venv-perf/stamp`.")
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, timeout=_TIME_LIMIT, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode == _NOT_STABLE:
        return Report(False, 0, 0.0, 0.0, output)
    if done.returncode:
        raise RuntimeError(f"perf_analyzer has ended with {done.returncode}:\n{output}")
    # perf_analyzer reports the rows per second, where it knows them: with -b.
    batch_size = re.search(r"Batch size: (\d+)", output)
    rows = int(batch_size[1]) if batch_size else 1
    return Report(
        True,
        int(_find_text(r"Request count: (\d+)", output)),
        float(_find_text(r"Throughput: ([\d.]+) infer/sec", output)) / rows,
        float(_find_text(r"Avg latency: (\d+) usec", output)) / 1e3,
        output,
    )


def _find_text(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    if match is None:
        raise RuntimeError(f"perf_analyzer has printed no {pattern!r}:\n{output}")
    return match[1]
