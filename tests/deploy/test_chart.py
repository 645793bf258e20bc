"""Helm accepts the chart, and Kubernetes accepts what the chart renders."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import Chart, HelmError, lint

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "tpuserve"
VOLUME = {"persistentVolumeClaim": {"claimName": "models"}}
ALL_VALUES = {
    "model": {"name": "half"},
    "flags": ["--enable_batching", "--api_keys_file=/etc/tpuserve/keys", "--open_health"],
    "secret": "keys",
    "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    "volume": VOLUME,
    "tmpVolume": {"emptyDir": {"sizeLimit": "20Gi"}},
    "serviceAccountName": "reader",
    "autoscaling": {"enabled": True},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [{"key": "tpu", "operator": "Exists"}],
}


def render(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rendered objects by their kinds."""
    with Chart.load(CHART) as chart:
        rendered = chart.render(values, name="digits", namespace="default")
    manifests = [
        manifest
        for path, text in rendered.items()
        if path.endswith(".yaml")
        for manifest in yaml.safe_load_all(text)
        if manifest
    ]
    return {manifest["kind"]: manifest for manifest in manifests}


def container_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_chart_passes_lint() -> None:
    report = lint(CHART, strict=True)
    assert report["errors"] == []
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("values", [{}, ALL_VALUES], ids=["default values", "all values"])
def test_kubernetes_accepts_what_the_chart_renders(values: dict[str, Any]) -> None:
    objects = render(values)
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= set(objects)
    for manifest in objects.values():
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_sample_model_is_served_without_a_model() -> None:
    objects = render({})
    container = container_of(objects)
    assert {"name": "MODEL_NAME", "value": ""} in container["env"]
    assert container["image"] == "tpuserve:0.1.0"
    assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp"]
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "tmp", "emptyDir": {}}]
    assert "serviceAccountName" not in pod


def test_values_reach_the_container() -> None:
    objects = render(ALL_VALUES)
    container = container_of(objects)
    assert container["args"] == ALL_VALUES["flags"]
    assert {"name": "MODEL_NAME", "value": "half"} in container["env"]
    assert {"name": "AWS_REGION", "value": "eu-central-1"} in container["env"]
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "reader"
    volumes = pod["volumes"]
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "20Gi"}} in volumes
    assert {"name": "models", **VOLUME} in volumes
    assert {"name": "secret", "secret": {"secretName": "keys"}} in volumes
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"tmp": "/tmp", "secret": "/etc/tpuserve", "models": "/models"}
    assert "replicas" not in objects["Deployment"]["spec"]
    assert objects["HorizontalPodAutoscaler"]["spec"]["maxReplicas"] == 8


@pytest.mark.parametrize("values", [{"replica": 2}, {"flags": ["enable_batching"]}])
def test_mistyped_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(HelmError):
        render(values)


@pytest.mark.parametrize(
    ("flags", "scheme"),
    [([], "HTTP"), (["--enable_batching", "--ssl_config_file=/etc/tpuserve/ssl"], "HTTPS")],
)
def test_probes_and_prometheus_speak_the_protocol_of_the_server(
    flags: list[str], scheme: str
) -> None:
    objects = render({"flags": flags})
    container = container_of(objects)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == scheme
    annotations = objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scheme"] == scheme.lower()


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (["--api_keys_file=/etc/tpuserve/keys"], "Add --open_health"),
        (["--api_keys_file=/etc/tpuserve/keys", "--open_health=false"], "Add --open_health"),
        (["--rest_api_port=9000"], "Set service.grpcPort and service.restPort"),
        (["--port", "--enable_batching"], "Set service.grpcPort and service.restPort"),
    ],
)
def test_flags_with_which_the_probes_would_fail_are_refused(flags: list[str], advice: str) -> None:
    with pytest.raises(HelmError, match=advice):
        render({"flags": flags})
