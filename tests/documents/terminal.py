"""Runs the commands of a document in shells with real servers.

A console block contains commands, each with its output. A block with a file name is a file for
later commands. The commands of a section run in order, in a shell of their own.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.preloaded.commands import preloaded_commands
from tests.processes import free_ports

ROOT = Path(__file__).parents[2]

BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: (?P<file>\S+))?\n(?P<content>.*?)^```\n|^## (?P<heading>[^\n]*)\n",
    re.M | re.S,
)
SERVER = re.compile(r"(\w+=\S+ )*tpuserve( serve|-model-server)\b")
PROGRAM = re.compile(r"(\w+=\S+ )*python\b")
# Commands that change files, which a server may notice while the command runs, or later.
FILE_CHANGE = re.compile(r"(cp|mkdir|mv|rm|sed|touch) ")
# Single quotes may hold several lines.
COMMAND = re.compile(r"^\$ (?P<command>(?:[^'\n]|'[^']*')*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.M)

LogAndOutput: TypeAlias = tuple[str, str]
"""The new lines of the server's log, and the output of a command."""

# Mask the times, versions, process IDs and durations in outputs and file names: they differ between
# runs.
MASKS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME"),
    (r"-\d{8}-\d{6}-\d+-", "-TIME-"),
    (r"\b\d{10}\b", "VERSION"),
    (r"\b\d+\.\d{3} ms\b", "DURATION"),
)
# The ports of the documents: gRPC, REST, a collector of spans, and a second server's gRPC and REST.
PORTS = ("8500", "8501", "4317", "9500", "9501")
# The beginnings of the names of variables that commands must not inherit: a developer's emulated
# TPU, what jax sets when a test imports it, and the flags of the tests.
DROPPED_VARIABLES = ("TPUSERVE_", "TPU_", "JAX_", "PJRT_", "LIBTPU_", "XLA_FLAGS")
# The time limit of a command in seconds. No command takes nearly as long, even on a busy machine.
TIME_LIMIT = 300
# The time in seconds within which the server must have noticed a changed file.
POLL_TIMEOUT = 120


@dataclass(frozen=True)
class Step:
    """A command, or a file for later commands.

    Attributes:
      line: The number of the first line, from 1.
      file: The name of the file, or "" for a command.
      text: The command, or the content of the file.
      output: The output of the command in the document.
    """

    line: int
    file: str
    text: str
    output: str = ""

    def __str__(self) -> str:
        return f"line_{self.line}"


def read_sections(text: str) -> dict[str, list[Step]]:
    """Return the steps of each section of a document by its heading.

    "" stands for the introduction.
    """
    by_heading: dict[str, list[Step]] = {"": []}
    steps = by_heading[""]
    for block in BLOCK.finditer(text):
        if block["heading"]:
            steps = by_heading[block["heading"]] = []
        elif block["kind"] == "console":
            start = block.start("content")
            for command in COMMAND.finditer(block["content"]):
                line = line_number(text, start + command.start())
                steps.append(Step(line, "", command["command"], command["output"]))
        elif block["file"]:
            steps.append(Step(line_number(text, block.start()), block["file"], block["content"]))
    return {heading: steps for heading, steps in by_heading.items() if steps}


def line_number(text: str, position: int) -> int:
    return text[:position].count("\n") + 1


class Terminal:
    """A shell with its own ports and its own directory in place of /tmp."""

    def __init__(self, heading: str, directory: Path, ports: Sequence[int]) -> None:
        self._port_numbers = dict(zip(PORTS, map(str, ports), strict=True))
        self._directory = directory
        name = re.sub(r"\W", "_", heading) or "first"
        self._log, self._output_file = (directory / f"{name}.{suffix}" for suffix in ("log", "out"))
        self._log.touch()
        self._log_position = 0
        self._shell = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, cwd=directory, env=environment(directory), text=True
        )

    def write(self, name: str, content: str) -> None:
        """Write a file of the document."""
        (self._directory / name).write_text(self._localize(content))

    def run_command(self, command: str, expected: str) -> LogAndOutput:
        """Run a command, and return the new log lines and the output, with the document's names.

        A query whose output differs from the expected output is repeated for a while, because the
        server polls its files. For the same reason, a command that changes files has no log lines.
        """
        if FILE_CHANGE.match(command):
            _, printed = self._run(command)
            return "", printed
        deadline = time.monotonic() + POLL_TIMEOUT
        while True:
            result = self._run(command)
            is_query = command.startswith("curl") and " -d " not in command
            if not is_query or matches_output(expected, *result) or time.monotonic() > deadline:
                return result
            time.sleep(0.1)

    def check_end(self) -> None:
        """Wait until no server runs, which would have the port of the next one."""

        def is_idle() -> bool:
            return not self._execute(f"jobs -r > {self._output_file}", self._output_file)

        wait_for(is_idle, "the document leaves a server running")

    def close(self) -> None:
        """End the shell and its servers."""
        self._execute("kill -KILL $(jobs -p) 2> /dev/null; wait")
        self._shell.communicate("exit\n", timeout=TIME_LIMIT)

    def _run(self, command: str) -> LogAndOutput:
        is_server = SERVER.match(command) is not None
        localized = self._localize(command)
        if is_server:
            ports = "" if "--port=" in command else f" --port={self._port_numbers['8500']}"
            if ports and "tpuserve serve" in command:
                ports += f" --rest_api_port={self._port_numbers['8501']}"
            localized = f"{localized.removesuffix('&')}{ports}"
        if is_server and command.endswith("&"):
            self._execute(f"{localized} >> {self._log} 2>&1 &")
            # A server of the sample model prints a request after its log line "ready".
            self._wait_until_ready(r":predict\n" if "--sample" in command else r" ready\n")
            return self._read_new_log_lines(), ""
        # Leave out TensorFlow's own log lines, which the document does not show.
        errors = "/dev/null" if PROGRAM.match(command) else "&1"
        printed = self._execute(
            f"{{ {localized}\n}} > {self._output_file} 2>{errors}", self._output_file
        )
        return self._read_new_log_lines(), self._restore_names(printed)

    def _execute(self, line: str, printed: Path | None = None) -> str:
        marker = self._directory / f"{self._log.stem}.done"
        marker.unlink(missing_ok=True)
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\ntouch {shlex.quote(str(marker))}\n")
        self._shell.stdin.flush()
        wait_for(marker.exists, line)
        return printed.read_text() if printed is not None else ""

    def _wait_until_ready(self, last_line: str) -> None:
        def is_ready() -> bool:
            log = self._log.read_text()[self._log_position :]
            return bool(re.search(rf"{last_line}|^Error: |^Failed", log, re.M))

        wait_for(is_ready, "ready")

    def _read_new_log_lines(self) -> str:
        log = self._log.read_text()
        new_lines, self._log_position = log[self._log_position :], len(log)
        return self._restore_names(new_lines)

    def _localize(self, text: str) -> str:
        for port, real in self._port_numbers.items():
            text = re.sub(rf"\b{port}\b", real, text)
        return text.replace("/tmp/", f"{self._directory}/tmp/")

    def _restore_names(self, text: str) -> str:
        for port, real in self._port_numbers.items():
            text = re.sub(rf"\b{real}\b", port, text)
        return text.replace(f"{self._directory}/tmp/", "/tmp/")


def environment(directory: Path) -> dict[str, str]:
    """Return an environment with the commands on the path and a curl without progress output."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(DROPPED_VARIABLES)
    }
    directories = (str(directory / "bin"), str(Path(sys.executable).parent), inherited["PATH"])
    return {
        **inherited,
        "PATH": os.pathsep.join(directories),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]),
        "CURL_HOME": str(directory),
        "no_proxy": "*",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def wait_for(condition: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"timed out: {description}"
        time.sleep(0.01)


def check_output(step: Step, outputs: Mapping[str, LogAndOutput]) -> None:
    """Assert that a command printed the output in the document.

    Args:
      step: A command of the document.
      outputs: The result of `run_sections`.
    """
    log, printed = outputs[str(step)]
    assert matches_output(step.output, log, printed), f"{step.text}\n{log}{printed}"


def matches_output(expected: str, log: str, printed: str) -> bool:
    """Return whether the document shows the log lines and the output, in either order.

    "..." in the document matches any text.
    """
    pattern = ".*?".join(
        r"\s+".join(map(re.escape, part.split())) for part in mask_text(expected).split("...")
    )
    both = (f"{log}\n{printed}", f"{printed}\n{log}")
    return any(
        re.fullmatch(rf"\s*{pattern}\s*", " ".join(mask_text(text).split()), re.S) for text in both
    )


def mask_text(text: str) -> str:
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return text


def run_sections(
    sections: Mapping[str, Sequence[Step]], lanes: Sequence[Sequence[str]], directory: Path
) -> dict[str, LogAndOutput]:
    """Run the commands of a document, and return what each shows by the name of its step.

    Args:
      sections: The steps of each section by its heading.
      lanes: The headings of the sections. The introduction runs first. The sections of a lane run
        in order, and the lanes at the same time.
      directory: The directory of all files.
    """
    (directory / "tmp").mkdir()
    (directory / ".curlrc").write_text("silent\nshow-error\n")
    (directory / "examples").symlink_to(ROOT / "examples")
    results: dict[str, LogAndOutput] = {}

    headings = ["", *(heading for lane in lanes for heading in lane)]
    numbers = iter(free_ports(len(PORTS) * len(headings)))
    ports = {heading: [next(numbers) for _ in PORTS] for heading in headings}

    def run_lane(headings: Sequence[str]) -> None:
        for heading in headings:
            terminal = Terminal(heading, directory, ports[heading])
            try:
                for step in sections.get(heading, ()):
                    if step.file:
                        terminal.write(step.file, step.text)
                    else:
                        results[str(step)] = terminal.run_command(step.text, step.output)
                terminal.check_end()
            finally:
                terminal.close()

    with preloaded_commands(directory / "bin"), ThreadPoolExecutor(len(lanes)) as threads:
        run_lane([""])
        list(threads.map(run_lane, lanes))
    return results
