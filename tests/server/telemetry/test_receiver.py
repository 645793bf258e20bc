"""The flag and OpenTelemetry's environment variables name the receiver of the spans."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import pytest

from server.metrics.timeline import Timeline
from server.telemetry.factory import start_tracing
from server.telemetry.receiver import OtlpReceiver, find_receiver
from tests.server.certificates import Authority, Identity
from tests.server.telemetry.collector import Collector
from tpuserve.errors import InvalidSetting

GENERAL = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
CERTIFICATE = "OTEL_EXPORTER_OTLP_CERTIFICATE"
URL = {GENERAL: "http://a:4317"}


@pytest.mark.parametrize(
    ("flag", "environment", "expected"),
    [
        ("", {}, None),
        ("http://f:1", {GENERAL: "http://a:1", TRACES: "http://b:1"}, ("http://f:1", "--otlp_en")),
        ("", {GENERAL: "http://a:1", TRACES: "http://b:1"}, ("http://b:1", TRACES)),
        ("", {GENERAL: "http://a:1", TRACES: " "}, ("http://a:1", GENERAL)),
        ("", {GENERAL: "a:1"}, ("https://a:1", GENERAL)),
        ("", {GENERAL: "a:1", "OTEL_EXPORTER_OTLP_INSECURE": "True"}, ("http://a:1", GENERAL)),
        ("", {**URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("http://a:4317", GENERAL)),
        ("", {**URL, "OTEL_SDK_DISABLED": "true"}, None),
        ("", {**URL, "OTEL_TRACES_EXPORTER": "none"}, None),
        ("", {**URL, "OTEL_TRACES_EXPORTER": "console,otlp"}, ("http://a:4317", GENERAL)),
        ("http://f:1", {"OTEL_SDK_DISABLED": "true"}, ("http://f:1", "--otlp_endpoint")),
    ],
)
def test_flag_precedes_the_variable_of_traces_and_that_of_all_signals(
    flag: str, environment: Mapping[str, str], expected: tuple[str, str] | None
) -> None:
    receiver = find_receiver(flag, environment)
    if expected is None:
        assert receiver is None
    else:
        assert receiver is not None
        assert receiver.endpoint == expected[0]
        assert receiver.source.startswith(expected[1])


def test_other_options_hold_for_the_flag_too() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_HEADERS": "key=general",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "key=traces",
        CERTIFICATE: "/no/file",  # Not read: the connection has no TLS.
    }
    expected = OtlpReceiver("http://f:1", headers="key=traces")
    assert find_receiver("http://f:1", environment) == expected


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({GENERAL: "http://"}, f"{GENERAL} is 'http://', which is no URL of a host."),
        ({TRACES: "ftp://a"}, f"{TRACES} is 'ftp://a', which is no URL of a host."),
        (
            {**URL, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is 'http/protobuf', and this server exports",
        ),
        ({GENERAL: "https://a", CERTIFICATE: "/no/file"}, f"{CERTIFICATE} is '/no/file', which"),
        ({GENERAL: "https://a", CERTIFICATE: __file__}, "it holds no certificate. Give a PEM file"),
        (
            {GENERAL: "https://a", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "k"},
            "CLIENT_KEY is set and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not. Set both",
        ),
    ],
)
def test_unusable_variable_is_named(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    environment: Mapping[str, str],
    text: str,
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        find_receiver("", environment)
    assert text in str(caught.value)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert start_tracing("") is None
    assert caplog.messages == [f"no traces are exported: {caught.value}"]


def test_unusable_certificate_is_an_error_with_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CERTIFICATE, "/no/file")
    with pytest.raises(InvalidSetting, match="/no/file"):
        start_tracing("https://localhost:4317")


@pytest.fixture(params=["plain", "TLS", "client certificate"])
def collector(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Collector]:
    """Start a collector that the environment names, with the files of its kind of connection."""
    authority = Authority()
    identity = authority.identity()
    needs_certificate = request.param == "client certificate"
    credentials = grpc.ssl_server_credentials(
        [(identity.key, identity.certificate)],
        authority.certificate if needs_certificate else None,
        needs_certificate,
    )
    collector = Collector(None if request.param == "plain" else credentials)
    files = {"CERTIFICATE": authority.certificate}
    if needs_certificate:
        client: Identity = authority.identity()
        files |= {"CLIENT_KEY": client.key, "CLIENT_CERTIFICATE": client.certificate}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(tmp_path / name))
    monkeypatch.setenv(GENERAL, collector.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=sesame")
    yield collector
    collector.stop()


def test_collector_of_the_environment_gets_the_spans(collector: Collector) -> None:
    tracing = start_tracing("")
    assert tracing is not None
    timeline = Timeline()
    timeline.end()
    tracing.record_rpc(
        timeline, method="/a.B/C", status="OK", metadata=(), peer="", runs_model=False
    )
    tracing.close()
    assert [span.name for span in collector.spans] == ["a.B/C"]
    assert collector.metadata["api-key"] == "sesame"
