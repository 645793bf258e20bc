"""Missing and wrong credentials of each object store are told in one line, with the remedy."""

import json
import os
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec
import httpx
import pytest

from server.storage.remote_models import RemoteModels
from tests.server.storage import stores
from tests.server.storage.store_handler import StoreHandler
from tests.server.storage.stores import NAME, versions
from tests.server.storage.web_server import WebServer, serve_directory
from tpuserve.errors import Code, CodedError

GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class GoogleHandler(StoreHandler):
    """Gives no token to any account, and forbids all else, in the forms of Google's APIs."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        text = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        self.answer(json.dumps(text).encode(), HTTPStatus.BAD_REQUEST)

    def do_GET(self) -> None:
        text = {"error": {"code": 403, "message": "a@b does not have storage.objects.list access."}}
        self.answer(json.dumps(text).encode(), HTTPStatus.FORBIDDEN)


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A server in the place of Google's."""
    file_system: Any = fsspec.get_filesystem_class("gs")
    file_system.clear_instance_cache()
    stores.hide_google_accounts(monkeypatch, tmp_path)
    with serve_directory(tmp_path, GoogleHandler) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.uri)
        yield server
    file_system.clear_instance_cache()


def refuse(uri: str, models: RemoteModels, text: str) -> str:
    """Assert that a base path is refused with a text; return the whole text."""
    with pytest.raises(
        CodedError, match=text, check=lambda error: error.code is Code.PERMISSION_DENIED
    ) as caught:
        versions(uri, models)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "File .*/key was not found"),
        ("", "Is a directory: .*"),
        ("no", "File .*/key is not a valid json file: Expecting value: .*"),
        ('{"type": "service_account"}', "Failed to load .*/key: .* missing fields .*"),
    ],
)
def test_google_key_file_that_cannot_be_read_is_told(
    google: WebServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    remote_models: RemoteModels,
    content: str | None,
    reason: str,
) -> None:
    path = tmp_path / "key"
    if content == "":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    monkeypatch.setenv(GOOGLE_FILE, str(path))
    refuse(
        "gs://store/half",
        remote_models,
        f"^gs://store/half cannot be read with the credentials of this server: .*{reason}. Set "
        f"{GOOGLE_FILE}, which is {path}, to the key file of an account that may read it.$",
    )


def test_google_account_that_is_refused_is_told_without_repetitions(
    google: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote_models: RemoteModels
) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048)
    account = {
        "type": "service_account",
        "client_email": "a@b",
        "private_key": key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ).decode(),
        "token_uri": f"{google.uri}/token",
    }
    path = tmp_path / "key"
    path.write_text(json.dumps(account))
    monkeypatch.setenv(GOOGLE_FILE, str(path))
    refuse("gs://store/half", remote_models, "server: invalid_grant: Invalid JWT Signature. Set ")
    # A file that replaces the first one is read.
    path.write_text("no")
    refuse("gs://store/half", remote_models, "is not a valid json file")
    assert google.sent_paths == ["/token"]


def test_google_account_without_permission_is_told(
    google: WebServer, remote_models: RemoteModels
) -> None:
    refuse(
        "gs://store/half", remote_models, f"storage.objects.list access. Set {GOOGLE_FILE} to the"
    )


def test_missing_key_of_s3_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, remote_models: RemoteModels
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    file_system: Any = fsspec.get_filesystem_class("s3")
    file_system.clear_instance_cache()
    refuse("s3://store/half", remote_models, "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to")
    file_system.clear_instance_cache()


def test_wrong_key_of_s3_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote_models: RemoteModels
) -> None:
    with stores.start("s3", tmp_path):
        endpoint = f"http://{os.environ['S3_ENDPOINT']}"
        # The number of further requests whose keys moto does not check, in all its servers.
        httpx.post(f"{endpoint}/moto-api/reset-auth", content=b"0").raise_for_status()
        try:
            refuse("s3://store/half", remote_models, "^s3://store/half .*: .* Set AWS_ACCESS_KEY_I")
        finally:
            httpx.post(f"{endpoint}/moto-api/reset-auth", content=b"inf").raise_for_status()


def test_missing_account_of_azure_is_told(
    monkeypatch: pytest.MonkeyPatch, remote_models: RemoteModels
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    refuse("az://models/half", remote_models, r"az://models/half .*Set AZURE_STORAGE_ACCOUNT_N")


def test_wrong_key_of_azure_is_told_with_the_same_text_each_time(
    tmp_path: Path, remote_models: RemoteModels
) -> None:
    (tmp_path / NAME).mkdir()
    with stores.start("az", tmp_path) as store:
        assert store.web_server is not None
        store.web_server.refused_paths.add(f"/account/{NAME}")
        text = refuse(
            "az://store/half", remote_models, r": The request failed. Set AZURE_STORAGE_A"
        )
        assert refuse("az://store/half", remote_models, re.escape(text)) == text


def test_wrong_token_of_the_hub_is_told_with_the_same_text_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote_models: RemoteModels
) -> None:
    with stores.start("hf", tmp_path):
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        text = refuse("hf://store/half", remote_models, r"401.*Invalid cred.*set HF_TOKEN to a t")
        assert refuse("hf://store/half", remote_models, re.escape(text)) == text
