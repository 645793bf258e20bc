"""The commands in docs/serve.md give what stands below them, with real servers."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from server.config import flags
from tests.processes import free_ports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/serve.md"
TEXT = DOCUMENT.read_text()

BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: (?P<file>\S+))?\n(?P<content>.*?)^```\n|^## (?P<heading>[^\n]*)\n",
    re.M | re.S,
)
COMMAND = re.compile(r"^\$ (?P<command>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.M)

# What the other sections ask is made in the first; of these, one below another goes on with it.
FIRST = [""]
LANES = [
    ["Several models", "Which metagraph runs"],
    ["Start, query, stop", "Batching", "Access and limits"],
]

Shown: TypeAlias = tuple[str, str]
"""What a server has said, and what a command has printed."""

# What is otherwise in another run: times, versions, process ids, and what takes part in a name.
MASKS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME"),
    (r"-\d{8}-\d{6}-\d+-", "-TIME-"),
    (r"\b\d{10}\b", "VERSION"),
)
# Of what hangs: nothing that works comes near, on a machine that others keep busy either.
TIME_LIMIT = 300
# What a poll has to find is there soon, and not at once.
PATIENCE = 120


@dataclass(frozen=True)
class Step:
    """A command, or a file that is to be there for those after it.

    Attributes:
      line: its first, from 1.
      file: its name; empty for a command.
      text: the command, or what is in the file.
      output: what stands below the command.
    """

    line: int
    file: str
    text: str
    output: str = ""

    def __str__(self) -> str:
        return f"line_{self.line}"


def sections() -> dict[str, list[Step]]:
    """The steps of each section, by its heading; "" is what comes before the first."""
    found: dict[str, list[Step]] = {"": []}
    steps = found[""]
    for each in BLOCK.finditer(TEXT):
        if each["heading"]:
            steps = found[each["heading"]] = []
        elif each["kind"] == "console":
            start = each.start("content")
            for command in COMMAND.finditer(each["content"]):
                line = line_of(start + command.start())
                steps.append(Step(line, "", command["command"], command["output"]))
        elif each["file"]:
            steps.append(Step(line_of(each.start()), each["file"], each["content"]))
    return {heading: steps for heading, steps in found.items() if steps}


def line_of(position: int) -> int:
    return TEXT[:position].count("\n") + 1


SECTIONS = sections()
COMMANDS = [each for steps in SECTIONS.values() for each in steps if not each.file]


class Terminal:
    """A shell of its own, with ports of its own; what the document has in /tmp is elsewhere."""

    def __init__(self, heading: str, directory: Path, ports: Sequence[int]) -> None:
        self._here = dict(zip(("8500", "8501"), map(str, ports), strict=True))
        self._directory = directory
        name = re.sub(r"\W", "_", heading) or "first"
        self._log, self._printed = (directory / f"{name}.{each}" for each in ("log", "out"))
        self._log.touch()
        self._told = 0
        self._shell = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, cwd=directory, env=environment(directory), text=True
        )

    def write(self, name: str, content: str) -> None:
        """A file as an editor leaves it."""
        (self._directory / name).write_text(self._placed(content))

    def show(self, command: str, expected: str) -> Shown:
        """What a server says meanwhile and what the command prints, in the document's words.

        A question to a server that is answered otherwise is asked again for a while.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self._run(command)
            is_question = command.startswith("curl") and " -d " not in command
            if not is_question or shows(expected, *found) or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def close(self) -> None:
        """Ends the shell and its servers."""
        self._execute("kill -KILL $(jobs -p) 2> /dev/null; wait")
        self._shell.communicate("exit\n", timeout=TIME_LIMIT)

    def _run(self, command: str) -> Shown:
        is_server = re.match(r"(\w+=\w+ )*tpuserve", command) is not None
        placed = self._placed(command)
        if is_server:
            ports = f"--port={self._here['8500']}"
            if "tpuserve serve" in command:
                ports += f" --rest_api_port={self._here['8501']}"
            placed = f"{placed.removesuffix('&')} {ports}"
        if is_server and command.endswith("&"):
            self._execute(f"{placed} >> {self._log} 2>&1 &")
            self._wait_until_ready()
            return self._news(), ""
        # What TensorFlow says for itself is of no interest, and goes there.
        errors = "/dev/null" if command.startswith("python") else "&1"
        printed = self._execute(f"{{ {placed}\n}} > {self._printed} 2>{errors}", self._printed)
        return self._news(), self._original(printed)

    def _execute(self, line: str, printed: Path | None = None) -> str:
        done = self._directory / f"{self._log.stem}.done"
        done.unlink(missing_ok=True)
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\ntouch {shlex.quote(str(done))}\n")
        self._shell.stdin.flush()
        wait_for(done.exists, line)
        return printed.read_text() if printed is not None else ""

    def _wait_until_ready(self) -> None:
        def is_ready() -> bool:
            said = self._log.read_text()[self._told :]
            return bool(re.search(r" ready\n|^Error: |^Failed", said, re.M))

        wait_for(is_ready, "ready")

    def _news(self) -> str:
        said = self._log.read_text()
        news, self._told = said[self._told :], len(said)
        return self._original(news)

    def _placed(self, text: str) -> str:
        for shown, real in self._here.items():
            text = re.sub(rf"\b{shown}\b", real, text)
        return text.replace("/tmp/", f"{self._directory}/tmp/")

    def _original(self, text: str) -> str:
        for shown, real in self._here.items():
            text = re.sub(rf"\b{real}\b", shown, text)
        return text.replace(f"{self._directory}/tmp/", "/tmp/")


def environment(directory: Path) -> dict[str, str]:
    """That of a user: with the commands on the path, and a curl that shows no progress."""
    kept = {name: each for name, each in os.environ.items() if not name.startswith("TPUSERVE_")}
    path = f"{directory / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {
        **kept,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]),
        "CURL_HOME": str(directory),
        "no_proxy": "*",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.01)


def shows(expected: str, said: str, printed: str) -> bool:
    """Whether just that was said and printed, in whichever order; "..." stands for any text."""
    shown = ".*?".join(
        r"\s+".join(map(re.escape, part.split())) for part in masked(expected).split("...")
    )
    both = (f"{said}\n{printed}", f"{printed}\n{said}")
    return any(
        re.fullmatch(rf"\s*{shown}\s*", " ".join(masked(each).split()), re.S) for each in both
    )


def masked(text: str) -> str:
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return text


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """What each command has shown, by its step's name."""
    directory = tmp_path_factory.mktemp("serve")
    (directory / "tmp").mkdir()
    (directory / ".curlrc").write_text("silent\nshow-error\n")
    (directory / "examples").symlink_to(ROOT / "examples")
    (directory / "bin").mkdir()
    for name, module in (("tpuserve", "tpuserve"), ("tpuserve-model-server", "server.command")):
        run = "-m tpuserve" if module == name else f"-c 'from {module} import main; main()'"
        command = directory / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {run} "$@"\n')
        command.chmod(0o755)
    found: dict[str, Shown] = {}

    numbers = iter(free_ports(2 * len(SECTIONS)))
    ports = {heading: (next(numbers), next(numbers)) for heading in SECTIONS}

    def work(headings: Sequence[str]) -> None:
        for heading in headings:
            terminal = Terminal(heading, directory, ports[heading])
            try:
                for step in SECTIONS[heading]:
                    if step.file:
                        terminal.write(step.file, step.text)
                    else:
                        found[str(step)] = terminal.show(step.text, step.output)
            finally:
                terminal.close()

    work(FIRST)
    with ThreadPoolExecutor(len(LANES)) as threads:
        list(threads.map(work, LANES))
    return found


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_shows_what_stands_below_it(step: Step, shown: dict[str, Shown]) -> None:
    said, printed = shown[str(step)]
    assert shows(step.output, said, printed), f"{step.text}\n{said}{printed}"


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M))
    assert sorted(SECTIONS) == sorted(sum(LANES, FIRST))


def test_every_flag_that_is_named_is_there() -> None:
    known = {*flags.FLAGS, "help", "cacert"}
    assert set(re.findall(r"(?<![\w-])--([a-z_]+)\b", TEXT)) <= known


def test_the_flags_that_are_told_to_have_no_effect_have_none() -> None:
    (told,) = re.findall(r"accepted without effect, with a log line: (.*?) \|", TEXT)
    without = {name for name, each in flags.FLAGS.items() if not each.has_effect}
    assert set(re.findall(r"--(\w+)", told)) == without


def test_the_defaults_that_are_told_are_those_of_the_flags() -> None:
    rows = re.findall(r"^\| `--(\w+)` \| ([\d,]+)", TEXT, re.M)
    assert len(rows) == 3
    for name, value in rows:
        assert int(value.replace(",", "")) == flags.FLAGS[name].default


def test_the_links_lead_somewhere() -> None:
    headings = {
        document: {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)", document.read_text(), re.M)
        }
        for document in DOCUMENT.parent.glob("*.md")
    }
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT):
        name, _, heading = link.partition("#")
        target = (DOCUMENT.parent / name).resolve() if name else DOCUMENT
        assert target.exists(), link
        assert not heading or heading in headings[target], link
