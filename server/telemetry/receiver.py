"""Finds the OTLP receiver of spans that the flag or OpenTelemetry's environment variables name.

Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter, and
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from server.config.settings import is_url_of_host
from tpuserve.errors import InvalidSetting

FLAG = "--otlp_endpoint"

_PROTOCOL = "grpc"


class OtlpReceiver(NamedTuple):
    """An OTLP receiver over gRPC, and the settings of the connection to it.

    Attributes:
      endpoint: the URL of the receiver, such as "http://localhost:4317". The connection uses TLS if
        the scheme is "https".
      headers: the headers of each call, in the form of OTEL_EXPORTER_OTLP_HEADERS; "" for none.
      authorities: PEM text with the certificates that the receiver's certificate is checked with;
        None for those of the system.
      key: PEM text with the private key of `certificate`; None for no certificate.
      certificate: PEM text with the certificate chain that this server shows to the receiver; None
        for no certificate.
    """

    endpoint: str
    source: str = FLAG
    headers: str = ""
    authorities: bytes | None = None
    key: bytes | None = None
    certificate: bytes | None = None


def find_receiver(flag: str, environment: Mapping[str, str]) -> OtlpReceiver | None:
    """Return the receiver that the flag or the environment variables name.

    The flag takes precedence over the variables of the endpoint.

    Args:
      flag: the value of --otlp_endpoint, a valid URL; "" if the flag is not given.

    Returns:
      None if neither the flag nor a variable names a receiver, or if variables disable traces.
    """
    variables = _EnvironmentVariables(environment)
    endpoint, source = (flag, FLAG) if flag else _find_endpoint(variables)
    if not endpoint:
        return None
    _, headers = variables.find("HEADERS")
    receiver = OtlpReceiver(endpoint, source, headers)
    if urlsplit(endpoint).scheme != "https":
        return receiver
    authorities = variables.find("CERTIFICATE")
    key, certificate = variables.find("CLIENT_KEY"), variables.find("CLIENT_CERTIFICATE")
    if bool(key[1]) != bool(certificate[1]):
        present, missing = (key, certificate) if key[1] else (certificate, key)
        raise InvalidSetting(
            f"{present[0]} is set and {missing[0]} is not. Set both, or none of them."
        )
    return receiver._replace(
        authorities=_read_authorities(*authorities),
        key=_read_file(*key),
        certificate=_read_file(*certificate),
    )


class _EnvironmentVariables:
    """The environment variables of OpenTelemetry's exporters over OTLP."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def find(self, name: str) -> tuple[str, str]:
        for prefix in ("OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"):
            value = self.environment.get(prefix + name, "").strip()
            if value:
                break
        return prefix + name, value


def _find_endpoint(variables: _EnvironmentVariables) -> tuple[str, str]:
    """Return the URL to which traces are sent, and the environment variable that sets the URL."""
    variable, endpoint = variables.find("ENDPOINT")
    environment = variables.environment
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if not endpoint or is_disabled or "otlp" not in exporters.split(","):
        return "", variable
    named_protocol, protocol = variables.find("PROTOCOL")
    if protocol not in ("", _PROTOCOL):
        raise InvalidSetting(
            f"{named_protocol} is {protocol!r}, and this server exports traces over gRPC alone. "
            f"Set {named_protocol}={_PROTOCOL}, and {variable} to the address for gRPC."
        )
    url = endpoint
    if "://" not in endpoint:
        # A gRPC target such as collector:4317 has no scheme. The variable that ends with INSECURE
        # says whether the connection to such a target is without TLS.
        _, is_insecure = variables.find("INSECURE")
        url = f"{'http' if is_insecure.lower() == 'true' else 'https'}://{endpoint}"
    if not is_url_of_host(url):
        raise InvalidSetting(
            f"{variable} is {endpoint!r}, which is no URL of a host. Give the address where the "
            f"collector receives OTLP over gRPC, as http://localhost:4317."
        )
    return url, variable


def _read_authorities(variable: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        # ssl.SSLError is an OSError, and is raised if the file has no certificate.
        reason = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise _unusable_file(variable, path, reason) from error
    return _read_file(variable, path)


def _read_file(variable: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unusable_file(variable, path, error.strerror) from error


def _unusable_file(variable: str, path: str, reason: str | None) -> InvalidSetting:
    return InvalidSetting(
        f"{variable} is {path!r}, which cannot be used: {reason}. Give a PEM file."
    )
