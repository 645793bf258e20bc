"""Parses the URL of a server, and creates the API object through which a client calls it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from tpuserve.client.apis.api import Api
from tpuserve.errors import InvalidSetting

ApiName: TypeAlias = Literal["v1", "v2"]
"""TensorFlow Serving's API ("v1") or the Open Inference Protocol ("v2")."""

_SCHEMES = ("http", "https", "grpc", "grpcs")
_DEFAULT_PORTS = {"grpc": 8500, "grpcs": 8500}


@dataclass(frozen=True)
class Address:
    """The address of a server.

    Attributes:
      base: scheme, host and port for HTTP, such as "http://localhost:8501"; "host:port" for gRPC.
    """

    url: str
    base: str
    is_http: bool
    is_secure: bool


def parse_url(url: str) -> Address:
    """Parse the URL of a server.

    Args:
      url: the URL, such as http://localhost:8501 or grpc://localhost:8500.

    Raises:
      InvalidSetting: the URL has an unknown scheme, no host, an invalid port, a path or a query.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _invalid(url, f"{error}") from error
    if parts.scheme not in _SCHEMES:
        raise _invalid(url, f"its scheme is {parts.scheme!r}")
    if not host:
        raise _invalid(url, "it has no host")
    if parts.path not in ("", "/") or parts.query:
        raise _invalid(url, f"it has the path {parts.path!r}")
    is_http = parts.scheme.startswith("http")
    name = f"[{host}]" if ":" in host else host
    if is_http:
        base = f"{parts.scheme}://{name}" + (f":{port}" if port else "")
    else:
        base = f"{name}:{port or _DEFAULT_PORTS[parts.scheme]}"
    return Address(url, base, is_http, parts.scheme in ("https", "grpcs"))


def create_api(address: Address, name: ApiName) -> Api:
    """Create the object that encodes the requests and decodes the replies of an API.

    Args:
      name: "v1" for TensorFlow Serving's API, "v2" for the Open Inference Protocol.

    Raises:
      InvalidSetting: the name is neither "v1" nor "v2".
    """
    # Import only the chosen API: a client over HTTP does not need to import protobuf.
    if name == "v1" and address.is_http:
        from tpuserve.client.apis.rest_v1 import RestV1

        return RestV1()
    if name == "v2" and address.is_http:
        from tpuserve.client.apis.rest_v2 import RestV2

        return RestV2()
    if name == "v1":
        from tpuserve.client.apis.grpc_v1 import GrpcV1

        return GrpcV1()
    if name == "v2":
        from tpuserve.client.apis.grpc_v2 import GrpcV2

        return GrpcV2()
    raise InvalidSetting(
        f"the API is {name!r}. Give 'v1' for TensorFlow Serving's API, or 'v2' for the Open "
        f"Inference Protocol."
    )


def _invalid(url: str, reason: str) -> InvalidSetting:
    return InvalidSetting(
        f"the URL is {url!r}: {reason}. Give a URL such as http://localhost:8501 or "
        f"grpc://localhost:8500; https:// and grpcs:// use TLS."
    )
