"""The command in docs/clusters.md trains in four processes, and prints the output shown there."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.documents.terminal import (
    ROOT,
    LogAndOutput,
    Step,
    check_output,
    read_sections,
    run_sections,
)
from tpuserve import devices
from trainer.config.tf_config import read_cluster_task

pytestmark = pytest.mark.slow

TEXT = (ROOT / "docs/clusters.md").read_text()
SECTIONS = read_sections(TEXT)
COMMANDS = [step for steps in SECTIONS.values() for step in steps if not step.file]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    return run_sections(SECTIONS, [list(SECTIONS)], tmp_path_factory.mktemp("clusters"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_the_variables_name_the_third_of_four_hosts(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```", TEXT, re.M | re.S)
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nenv -0\n")
    script.chmod(0o755)
    printed = subprocess.run(
        ["sh", "-c", block],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    environ = dict(variable.split("=", 1) for variable in printed.split("\0") if variable)
    hosts = read_cluster_task(environ).hosts
    assert hosts is not None
    assert (hosts.index, len(hosts.addresses), hosts.first) == (2, 4, ("10.0.0.1", 4000))
    assert devices.find_pjrt_platform(environ) == "cpu"


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M)) == 1
