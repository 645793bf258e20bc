"""Signatures cover exactly the files of a model, and verify with the right key only."""

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tpuserve.errors import Code, CodedError, ExtraNotInstalled, InvalidSetting
from tpuserve.saved_model import signing


def write_keys(directory: Path) -> tuple[Path, Path]:
    """Write a new pair of keys; return the paths of the private and of the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    directory.mkdir(exist_ok=True)
    private, public = directory / "private.pem", directory / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path / "keys")


@pytest.fixture
def model(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    """A signed model."""
    directory = tmp_path / "half" / "1"
    (directory / "variables").mkdir(parents=True)
    (directory / "saved_model.pb").write_text("graph")
    (directory / "variables" / "variables.index").write_text("index")
    assert signing.sign(directory, keys[0]) == directory / "model.sig"
    return directory


def test_signed_model_verifies(model: Path, keys: tuple[Path, Path]) -> None:
    signing.verify(model, keys[1])
    assert sorted(path.name for path in model.iterdir()) == [
        "model.sig",
        "saved_model.pb",
        "variables",
    ]


def test_model_that_is_signed_again_or_moved_verifies(model: Path, keys: tuple[Path, Path]) -> None:
    signing.sign(model, keys[0])
    signing.verify(model.rename(model.with_name("7")), keys[1])


@pytest.mark.parametrize(
    "path", ["saved_model.pb", "variables/variables.index", "new", ".gitignore"]
)
def test_changed_or_added_file_is_refused(model: Path, keys: tuple[Path, Path], path: str) -> None:
    (model / path).write_text("changed")
    with pytest.raises(
        CodedError,
        match=r"model\.sig does not verify with .*: Signature mis",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        signing.verify(model, keys[1])


def test_missing_file_is_refused(model: Path, keys: tuple[Path, Path]) -> None:
    (model / "variables" / "variables.index").unlink()
    with pytest.raises(
        CodedError,
        match="does not verify",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        signing.verify(model, keys[1])


def test_signature_of_another_key_is_refused(
    model: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    _, other = write_keys(tmp_path / "other")
    with pytest.raises(
        CodedError,
        match=r"does not verify with .*/other/public\.pem",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        signing.verify(model, other)


@pytest.mark.parametrize("text", ["", "{}", "no signature"])
def test_damaged_signature_is_refused(model: Path, keys: tuple[Path, Path], text: str) -> None:
    (model / "model.sig").write_text(text)
    with pytest.raises(
        CodedError,
        match="does not verify",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ) as caught:
        signing.verify(model, keys[1])
    assert "\n" not in str(caught.value)


def test_unsigned_model_is_refused(model: Path, keys: tuple[Path, Path]) -> None:
    (model / "model.sig").unlink()
    with pytest.raises(
        CodedError,
        match=r"has no model\.sig, and signatures are required",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        signing.verify(model, keys[1])


@pytest.mark.parametrize(("name", "text"), [("absent.pem", None), ("bad.pem", "no key")])
def test_key_that_cannot_be_used_is_told(
    model: Path, tmp_path: Path, name: str, text: str | None
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    for use in (signing.sign, signing.verify):
        with pytest.raises(InvalidSetting, match=name):
            use(model, tmp_path / name)


def test_public_key_does_not_sign(model: Path, keys: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidSetting, match=r"public\.pem holds no private key of an elliptic"):
        signing.sign(model, keys[1])


def test_keys_of_openssl_work(model: Path, tmp_path: Path) -> None:
    for command in (
        "openssl ecparam -name prime256v1 -genkey -noout -out private.pem",
        "openssl ec -in private.pem -pubout -out public.pem",
    ):
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    signing.sign(model, tmp_path / "private.pem")
    signing.verify(model, tmp_path / "public.pem")


def test_extra_that_is_not_installed_is_told(
    model: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str, *others: Any) -> Any:
        return None if name == "model_signing" else object()

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(ExtraNotInstalled, match=r'package model_signing, .*"\.\[signing\]"'):
        signing.verify(model, keys[1])
