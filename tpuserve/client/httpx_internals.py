"""Sets private attributes of httpx, which has no public way to choose a network backend."""

import importlib.metadata

import httpcore
import httpx

from tpuserve.errors import UnsupportedVersion


def set_network_backend(client: httpx.Client, backend: httpcore.NetworkBackend) -> None:
    """Let a client of httpx use a network backend for all connections, with and without a proxy."""
    try:
        # httpx uses the transports in `_mounts` for connections through proxies.
        for transport in (client._transport, *client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                _check_attribute(transport._pool, "_network_backend")
                transport._pool._network_backend = backend
    except AttributeError as error:
        raise UnsupportedVersion(
            f"httpx {importlib.metadata.version('httpx')} with httpcore "
            f"{importlib.metadata.version('httpcore')} lacks a private name that tpuserve uses "
            f"({error}). Install a supported version: httpx>=0.28,<0.29."
        ) from error


def _check_attribute(value: object, attribute: str) -> None:
    getattr(value, attribute)
