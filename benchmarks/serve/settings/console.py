"""Measures the cost of the console, open in a browser, for a busy server.

    python -m benchmarks.serve.settings.console [--rounds 5] [--seconds 10]

The server runs as the command `tpuserve serve` with half_plus_two, and 8 clients send requests over
REST as fast as they can. In turns, a page of the console is open in Chromium or not. Printed are
requests/s, and the server's processor time per request, which other programs of the machine change
less. The browser runs with the lowest priority: operators run it on another machine. Then polls
alone are sent, one after the other, for the processor time of a poll.

Needs h2load (Debian: nghttp2-client) and Chromium.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.serve import h2load, turns
from benchmarks.serve.h2load import Target
from benchmarks.serve.models import save_half_plus_two
from server.process import ports

HOST = "127.0.0.1"
CLIENTS = 8
POLLS = 200
POLL_SECONDS = 2.0
_BODY = {"instances": [1.0, 2.0, 5.0]}
_LOWEST_PRIORITY = 19


@contextmanager
def running_server(directory: Path) -> Iterator[tuple[str, int]]:
    """Serve half_plus_two with `tpuserve serve`; yield the URL and the process ID."""
    save_half_plus_two(directory / "half" / "1")
    with ports.bind_port(HOST, 0, "") as rest:
        port = rest.getsockname()[1]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tpuserve", "serve", "--model_name=half", "--port=0"),
            *(f"--model_base_path={directory / 'half'}", f"--rest_api_port={port}"),
            f"--host={HOST}",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stderr is not None
        if not any(line.endswith("ready\n") for line in process.stderr):
            raise RuntimeError("the server has ended")
        yield f"http://{HOST}:{port}", process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def open_console(url: str) -> Iterator[None]:
    """Keep the console of a server open in a browser, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serve.settings.console", "--page", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError("the page shows no model")
        yield
    finally:
        process.communicate("\n")


def show_page(url: str) -> None:
    """Show the console until a line of standard input; print a line once it shows the model."""
    from playwright.sync_api import sync_playwright

    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.goto(url)
        page.locator("#models tbody tr").first.wait_for()
        print("open", flush=True)
        sys.stdin.readline()
        browser.close()


def measure(url: str, target: Target, seconds: int, log: Path, has_page: bool) -> dict[str, float]:
    """Return the figures of a server under load, with or without a page of the console."""
    with open_console(url) if has_page else contextlib.nullcontext():
        figures = h2load.measure(target, CLIENTS, seconds, log)
    return {
        "requests/s": figures.requests_per_second,
        "us of the server's processor time per request": figures.cpu_us,
    }


def measure_poll(url: str, pid: int) -> float:
    """Return the server's processor time for a poll, in milliseconds."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    before = turns.cpu_seconds(pid)
    for _ in range(POLLS):
        with opener.open(f"{url}/console/status", timeout=60) as response:
            response.read()
    return (turns.cpu_seconds(pid) - before) / POLLS * 1000


def print_report(comparisons: Mapping[str, turns.Comparison], poll_ms: float) -> None:
    """Print the comparisons, and the share of a processor that the polls of a page take."""
    turns.print_comparisons("half_plus_two over REST, with and without the console", comparisons)
    share = poll_ms / 1000 / POLL_SECONDS
    print(f"  a poll takes {poll_ms:.2f} ms of the server's processor time: {share:.2%} of one")


def main() -> None:
    """Measure, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--page", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.page:
        show_page(arguments.page)
        return
    for program, package in (("h2load", "nghttp2-client"), ("chromium", "chromium")):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed. Install it: apt-get install {package}")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with running_server(directory) as (url, pid):
            body = directory / "body"
            h2load.write_json_body(body, _BODY)
            target = Target(f"{url}/v1/models/half:predict", body, False, pid)
            run = partial(measure, url, target, arguments.seconds, directory / "log")
            comparisons = turns.compare_in_turns(True, False, run, arguments.rounds)
            print_report(comparisons, measure_poll(url, pid))


if __name__ == "__main__":
    main()
