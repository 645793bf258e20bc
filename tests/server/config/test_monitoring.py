"""Metrics are shown where the file says, and only if it says so."""

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
