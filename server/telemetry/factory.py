"""Starts the export of traces if a flag enables it and OpenTelemetry is installed."""

from typing import TYPE_CHECKING

from tpuserve.errors import ExtraNotInstalled

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing


def start_tracing(endpoint: str) -> "Tracing | None":
    """Start a thread that exports the spans of requests.

    Args:
      endpoint: the URL of an OTLP receiver over gRPC, such as "http://localhost:4317"; empty for no
        traces.

    Returns:
      The object with which the frontends record their requests; None if `endpoint` is empty.

    Raises:
      ExtraNotInstalled: OpenTelemetry is not installed.
    """
    if not endpoint:
        return None
    # Import the module here and not at the top of the file, because it needs OpenTelemetry's SDK,
    # which is optional.
    try:
        from server.telemetry.tracing import Tracing
    except ImportError as error:
        raise ExtraNotInstalled(
            f"--otlp_endpoint needs OpenTelemetry, which cannot be imported ({error}). Install it "
            f'with: pip install "tpuserve[tracing]"'
        ) from error
    return Tracing(endpoint)
