"""Tracing is off by default, and names the extra that it needs."""

import subprocess
import sys

import pytest

from server.telemetry.factory import start_tracing
from tpuserve.errors import ExtraNotInstalled


def test_no_endpoint_means_no_tracing() -> None:
    assert start_tracing("") is None


def test_missing_package_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "server.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ExtraNotInstalled, match=r'pip install "\.\[tracing\]"') as caught:
        start_tracing("http://localhost:4317")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("--otlp_endpoint needs OpenTelemetry")


def test_missing_package_is_a_warning_where_a_variable_names_the_receiver(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "server.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    assert start_tracing("") is None
    (message,) = caplog.messages
    assert "exported: OTEL_EXPORTER_OTLP_ENDPOINT needs OpenTelemetry, which cannot" in message


@pytest.mark.slow
def test_a_server_without_traces_imports_nothing_of_opentelemetry() -> None:
    program = "import sys, server.app; print([m for m in sys.modules if 'opentelemetry' in m])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr
