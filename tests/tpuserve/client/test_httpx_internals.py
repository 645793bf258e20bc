"""A version of httpx that the client cannot use is reported with the supported ones."""

from pathlib import Path

import httpcore
import httpx
import pytest

import tpuserve
from tpuserve.client.httpx_internals import set_network_backend
from tpuserve.errors import UnsupportedVersion


def test_network_backend_is_set_for_connections_through_proxies_too() -> None:
    backend = httpcore.MockBackend([])
    with httpx.Client(proxy="http://localhost:1") as client:
        set_network_backend(client, backend)
        for transport in (client._transport, *client._mounts.values()):
            assert isinstance(transport, httpx.HTTPTransport)
            assert transport._pool._network_backend is backend


def test_missing_attribute_is_reported_with_the_versions() -> None:
    with httpx.Client() as client:
        assert isinstance(client._transport, httpx.HTTPTransport)
        del client._transport._pool._network_backend
        with pytest.raises(UnsupportedVersion) as error:
            set_network_backend(client, httpcore.MockBackend([]))
    assert str(error.value) == (
        f"httpx {httpx.__version__} with httpcore {httpcore.__version__} lacks a private name that "
        "tpuserve uses ('ConnectionPool' object has no attribute '_network_backend'). "
        "Install a supported version: httpx>=0.28,<0.29."
    )


def test_bounds_in_the_error_are_those_of_pyproject() -> None:
    pyproject = Path(tpuserve.__file__).parents[1] / "pyproject.toml"
    assert '"httpx>=0.28,<0.29"' in pyproject.read_text(encoding="utf-8")
