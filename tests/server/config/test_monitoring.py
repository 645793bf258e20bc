"""Metrics are served at the path that the file names, and only if the file turns them on."""

from pathlib import Path

import pytest

from server.config import monitoring


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", None),
        ("prometheus_config { path: '/metrics' }", None),
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ("prometheus_config: { enable: true, path: '/metrics' }", "/metrics"),
    ],
)
def test_path_of_the_metrics(tmp_path: Path, text: str, path: str | None) -> None:
    file = tmp_path / "monitoring.config"
    file.write_text(text)
    assert monitoring.read_metrics_path(file) == path
