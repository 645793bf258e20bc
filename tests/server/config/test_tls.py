"""The TLS configuration file contains the keys and certificates themselves, not their paths."""

from pathlib import Path

import pytest

from server.config import tls
from server.config.tls import TlsConfig
from tpuserve.errors import InvalidConfig

KEY = "-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----\\n"


def write_config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ssl.config"
    path.write_text(text)
    return path


def test_keys_are_read(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        f'server_key: "{KEY}" server_cert: "{KEY}" custom_ca: "{KEY}" client_verify: true',
    )
    pem = KEY.replace("\\n", "\n").encode()
    assert tls.read_tls_config(path) == TlsConfig(pem, pem, pem, client_verify=True)


def test_file_name_in_the_place_of_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no PEM text in server_key. Put the PEM text itself"):
        tls.read_tls_config(write_config(tmp_path, 'server_key: "/etc/key.pem"'))


def test_verification_of_clients_without_an_authority_is_one_line(tmp_path: Path) -> None:
    path = write_config(tmp_path, f'server_key: "{KEY}" server_cert: "{KEY}" client_verify: true')
    with pytest.raises(InvalidConfig) as caught:
        tls.read_tls_config(path)
    assert str(caught.value).startswith(
        f"{path} sets client_verify and has no PEM text in custom_ca"
    )
    assert "\n" not in str(caught.value)


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, KEY)
    with pytest.raises(InvalidConfig, match=f"Invalid protobuf file: '{path}': line 1, column 1: "):
        tls.read_tls_config(path)
