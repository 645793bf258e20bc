"""The commands in docs/containers.md have the image, the chart and the files do what they promise.

No container engine and no cluster runs here. The entrypoint of the image gets the arguments and the
variables of each `docker run`, and the chart is rendered with the values of each `helm install`.
"""

import argparse
import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from server.config import flags
from tests.deploy import test_chart, test_image

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/containers.md").read_text()
COMMANDS = [
    shlex.split(command.replace("\\\n", ""))
    for command in re.findall(r"^    \$ ((?:.*\\\n)*.*)$", TEXT, re.M)
]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def commands(*words: str) -> list[list[str]]:
    """Return the arguments of the commands that begin with these words."""
    return [command[len(words) :] for command in COMMANDS if command[: len(words)] == [*words]]


def docker_run(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--tmpfs")
    parser.add_argument("-p", dest="ports", action="append", default=[])
    parser.add_argument("-v", dest="volumes", action="append", default=[])
    parser.add_argument("-e", dest="variables", action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("arguments", commands("docker", "run"), ids=" ".join)
def test_docker_run_starts_a_server_of_the_mounted_models(
    arguments: list[str], tmp_path: Path
) -> None:
    run = docker_run(arguments)
    variables = dict(variable.split("=", 1) for variable in run.variables)
    assert set(variables) <= set(test_image.DEFAULTS)
    result = test_image.run_entrypoint(
        tmp_path, *run.arguments, **(test_image.DEFAULTS | variables)
    )
    assert result.returncode == 0, result.stderr
    command = result.stdout.strip()
    assert command.startswith("tpuserve-model-server" if run.volumes else "tpuserve serve --sample")
    # A flag of the server names each directory that is mounted, or a file in it.
    for volume in run.volumes:
        assert re.search(rf"={volume.split(':')[1]}\b", command)
    assert set(re.findall(r"--(\w+)", command)) <= {*flags.FLAGS, "sample"}
    exposed = re.findall(r"\d+", re.findall(r"^EXPOSE (.*)", DOCKERFILE, re.M)[0])
    assert {port.split(":")[1] for port in run.ports} <= set(exposed)


def test_the_dockerfile_has_every_build_argument() -> None:
    for name in re.findall(r"--build-arg (\w+)=", TEXT):
        assert f"\nARG {name}=" in DOCKERFILE


def helm_values(arguments: list[str]) -> dict[str, Any]:
    """Return the values that the options --set of a command give."""
    values: dict[str, Any] = {}
    for option, setting in itertools.pairwise(arguments):
        if option != "--set":
            continue
        path, text = setting.split("=", 1)
        *parents, name = path.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = text[1:-1].split(",") if text.startswith("{") else text
    return values


@pytest.mark.parametrize("arguments", commands("helm", "install"), ids=" ".join)
def test_helm_install_renders_objects_that_kubernetes_accepts(arguments: list[str]) -> None:
    assert ROOT / arguments[1] == test_chart.CHART
    objects = test_chart.render(helm_values(arguments))
    for manifest in objects.values():
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_kubectl_applies_a_file_that_is_there() -> None:
    for option, name in commands("kubectl", "apply"):
        assert option == "-f"
        assert (ROOT / name).is_file()


def test_no_other_command_is_in_the_document() -> None:
    kinds = {" ".join(command[:2]) for command in COMMANDS}
    run = {"docker run", "helm install", "kubectl apply"}
    assert kinds == run | {"docker build", "docker buildx", "kubectl annotate"}
