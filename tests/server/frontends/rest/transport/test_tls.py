"""REST serves TLS with the keys of --ssl_config_file."""

import dataclasses
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config.tls import TlsConfig
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport import server as tls_context
from server.frontends.rest.transport.server import RestServer
from server.process import ports
from tests.server.certificates import Authority
from tests.server.frontends.rest.wire import Address
from tpuserve.errors import InvalidConfig

AUTHORITY = Authority()
OURS, CLIENT = AUTHORITY.identity(), AUTHORITY.identity()
SERVER = TlsConfig(OURS.key, OURS.certificate)
MUTUAL = dataclasses.replace(SERVER, custom_ca=AUTHORITY.certificate, client_verify=True)


@pytest.fixture
def address(dataplane: DataPlane, request: pytest.FixtureRequest) -> Iterator[Address]:
    with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as listener:
        server = RestServer(build_rest_app(dataplane), listener, 5, pytest.fail, tls=request.param)
        server.start()
        yield listener.getsockname()
        server.stop()
        server.join()


def predict(address: Address, context: ssl.SSLContext) -> bytes:
    connection = http.client.HTTPSConnection(*address, context=context, timeout=30)
    try:
        connection.request("POST", "/v1/models/half:predict", b'{"inputs": 2}')
        return connection.getresponse().read()
    finally:
        connection.close()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.certificate.decode())


@pytest.mark.parametrize("address", [SERVER], indirect=True)
def test_client_that_trusts_the_authority_is_answered(address: Address) -> None:
    assert predict(address, trusting()) == b'{\n    "outputs": 3.0\n}'


@pytest.mark.parametrize("address", [SERVER], indirect=True)
def test_client_that_does_not_trust_the_authority_is_not_answered(address: Address) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        predict(address, ssl.create_default_context())


@pytest.mark.parametrize("address", [MUTUAL], indirect=True)
def test_client_must_present_a_certificate_if_required(address: Address, tmp_path: Path) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        predict(address, trusting())
    context = trusting()
    (tmp_path / "client.pem").write_bytes(CLIENT.certificate + CLIENT.key)
    context.load_cert_chain(tmp_path / "client.pem")
    assert predict(address, context) == b'{\n    "outputs": 3.0\n}'


@pytest.mark.parametrize(
    "wrong",
    [
        dataclasses.replace(SERVER, server_key=CLIENT.key),
        dataclasses.replace(SERVER, server_cert=b"no certificate"),
        dataclasses.replace(SERVER, custom_ca=b"no authority"),
    ],
)
def test_unusable_keys_are_refused_at_the_start(wrong: TlsConfig) -> None:
    with pytest.raises(InvalidConfig, match="--ssl_config_file: the key and certificates cannot"):
        tls_context.create_ssl_context(wrong)
