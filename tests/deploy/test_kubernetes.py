"""The files for Kubernetes agree with its published schemas, and with the server's routes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.server.open_inference_clients.test_clients import PYTHON as CLIENTS_PYTHON

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
# The oldest and the newest version of Kubernetes whose schemas kubernetes-validate has.
VERSIONS = ("1.27", "1.37")


def contains(parsed: Any, written: Any) -> bool:
    """Return whether a parsed manifest has all that the file has; parsing adds defaults."""
    if isinstance(written, dict):
        return all(contains(parsed.get(name), value) for name, value in written.items())
    if isinstance(written, list):
        return len(parsed) == len(written) and all(map(contains, parsed, written))
    return bool(parsed == written)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_every_yaml_file_satisfies_yamllint() -> None:
    files = [*DEPLOY.glob("*.yaml"), *DEPLOY.glob("helm/*/*.yaml")]
    assert len(files) >= 6
    command = [
        sys.executable,
        "-m",
        "yamllint",
        "--strict",
        "-c",
        str(DEPLOY / ".yamllint.yaml"),
        *map(str, files),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_the_objects(version: str) -> None:
    objects = documents("kubernetes.yaml")
    assert [manifest["kind"] for manifest in objects] == [
        "ServiceAccount",
        "Deployment",
        "Service",
        "PodDisruptionBudget",
    ]
    for manifest in objects:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_service_budget_and_account_are_those_of_the_pods() -> None:
    account, deployment, service, budget = documents("kubernetes.yaml")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "http": 8501}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)


@pytest.mark.skipif(not Path(CLIENTS_PYTHON).exists(), reason="make .venv-clients/stamp")
def test_kserve_has_the_fields_of_the_runtime() -> None:
    program = (
        "import json\n"
        "from kserve.models import V1alpha1ServingRuntimeSpec as Spec\n"
        "from kserve.models import V1alpha1SupportedModelFormat as Format\n"
        "print(json.dumps([sorted(m.attribute_map.values()) for m in (Spec, Format)]))\n"
    )
    result = subprocess.run([CLIENTS_PYTHON, "-I", "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    spec_fields, format_fields = json.loads(result.stdout)
    (runtime,) = documents("kserve-runtime.yaml")
    assert set(runtime["spec"]) <= set(spec_fields)
    for model_format in runtime["spec"]["supportedModelFormats"]:
        assert set(model_format) <= set(format_fields)


def test_kubernetes_accepts_the_pod_of_the_runtime() -> None:
    (runtime,) = documents("kserve-runtime.yaml")
    spec = {name: runtime["spec"][name] for name in ("containers", "volumes")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)


def test_runtime_offers_the_protocols_on_the_ports_that_kserve_expects() -> None:
    (runtime,) = documents("kserve-runtime.yaml")
    assert runtime["spec"]["protocolVersions"] == ["v1", "v2", "grpc-v1", "grpc-v2"]
    (container,) = runtime["spec"]["containers"]
    assert container["command"] == ["tpuserve-model-server"]
    assert {"--model_base_path=/mnt/models", "--port=9000", "--rest_api_port=8080"} <= {
        *container["args"]
    }


def test_job_set_has_the_fields_of_its_published_schema() -> None:
    # The import takes over a second, which other tests need not wait for.
    from kubeflow_trainer_api import models as trainer_models

    (job_set,) = documents("jobset.yaml")
    parsed = trainer_models.JobsetV1alpha2JobSet.from_dict(job_set)
    assert parsed is not None
    assert contains(parsed.to_dict(), job_set)


def test_train_job_has_the_fields_of_its_published_schema() -> None:
    from kubeflow_trainer_api import models as trainer_models

    runtime, job = documents("trainjob.yaml")
    for manifest, model in (
        (runtime, trainer_models.TrainerV1alpha1ClusterTrainingRuntime),
        (job, trainer_models.TrainerV1alpha1TrainJob),
    ):
        parsed = model.from_dict(manifest)
        assert parsed is not None
        assert contains(parsed.to_dict(), manifest)
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]


def training_commands() -> dict[str, tuple[list[str], list[str], dict[str, str]]]:
    """Return the command, the arguments and the fixed variables of each file's container."""
    (job_set,) = documents("jobset.yaml")
    runtime, job = documents("trainjob.yaml")
    containers = {}
    for name, manifest in (
        ("jobset", job_set["spec"]),
        ("trainjob", runtime["spec"]["template"]["spec"]),
    ):
        (replicated,) = manifest["replicatedJobs"]
        (containers[name],) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    arguments = {
        "jobset": containers["jobset"]["args"],
        "trainjob": job["spec"]["trainer"]["args"],
    }
    return {
        name: (
            container["command"],
            arguments[name],
            {item["name"]: item["value"] for item in container["env"] if "value" in item},
        )
        for name, container in containers.items()
    }


@pytest.mark.parametrize("name", ["jobset", "trainjob"])
@pytest.mark.parametrize(
    ("index", "task"),
    [(0, {"type": "chief", "index": 0}), (3, {"type": "worker", "index": 2})],
)
def test_each_pod_makes_its_tf_config(
    name: str, index: int, task: dict[str, Any], tmp_path: Path
) -> None:
    # A command `tpuserve` that shows what the pod gives it.
    script = tmp_path / "tpuserve"
    script.write_text(
        '#!/bin/sh\necho "$TF_CONFIG"\n'
        'echo "$TPUSERVE_TPU_RUNTIME $TPUSERVE_PJRT_PLATFORM"\necho "$@"\n'
    )
    script.chmod(0o755)
    command, arguments, variables = training_commands()[name]
    result = subprocess.run(
        [*command, *arguments],
        env={
            "PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "JOB_COMPLETION_INDEX": str(index),
            "JOBSET_NAME": "train",
            "NODES": "4",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    tf_config, devices, tpuserve_arguments = result.stdout.splitlines()
    hosts = [f"train-node-0-{number}.train:2222" for number in range(4)]
    assert json.loads(tf_config) == {
        "cluster": {"chief": hosts[:1], "worker": hosts[1:]},
        "task": task,
    }
    assert devices == "pjrt cpu"
    assert tpuserve_arguments == "run /job/train.py --model_dir=/job/model"
