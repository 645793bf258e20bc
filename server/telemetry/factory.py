"""Starts the export of traces if a flag or an environment variable names the receiver."""

import logging
import os
from typing import TYPE_CHECKING

from server.telemetry.receiver import OtlpReceiver, find_receiver
from tpuserve.errors import ExtraNotInstalled, InvalidSetting, TpuserveError

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing

logger = logging.getLogger(__name__)


def start_tracing(endpoint: str) -> "Tracing | None":
    """Start a thread that exports the spans of requests.

    Args:
      endpoint: the URL of an OTLP receiver over gRPC, such as "http://localhost:4317"; empty for
        the receiver that OpenTelemetry's environment variables name, if any.

    Returns:
      The object with which the frontends record their requests. None if there is no receiver, or if
      `endpoint` is empty and the receiver of the environment variables cannot be used.

    Raises:
      InvalidSetting: `endpoint` is not empty, and the server cannot use the value of an environment
        variable.
    """
    try:
        receiver = find_receiver(endpoint, os.environ)
        return None if receiver is None else _create_tracing(receiver)
    except TpuserveError as error:
        if endpoint:
            raise
        # If only environment variables name a receiver, serve without traces: a cluster often
        # sets these variables for all its programs.
        logger.warning("no traces are exported: %s", error)
        return None


def _create_tracing(receiver: OtlpReceiver) -> "Tracing":
    # Import the module here and not at the top of the file, because it needs OpenTelemetry's SDK,
    # which is optional.
    try:
        from server.telemetry.tracing import Tracing
    except ImportError as error:
        raise ExtraNotInstalled(
            f"{receiver.source} needs OpenTelemetry, which cannot be imported ({error}). Install "
            f'it with: pip install ".[tracing]"'
        ) from error
    try:
        return Tracing(receiver)
    except ValueError as error:
        raise InvalidSetting(
            f"A variable OTEL_EXPORTER_OTLP_... has a value that OpenTelemetry refuses: {error}. "
            f"Correct or unset it."
        ) from error
