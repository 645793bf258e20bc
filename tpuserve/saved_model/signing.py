"""Signs models and verifies signatures, in the format of OpenSSF Model Signing.

A signature says that the files of a model come from the owner of a key.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

from tpuserve.errors import ExtraNotInstalled, InvalidSetting, UntrustedModel

SIGNATURE_FILE = "model.sig"
"""The file of the signature, in the directory that it signs."""

_MODULES = ("model_signing", "OpenSSL")


def check_installed() -> None:
    """Check that the packages for signatures are installed.

    Raises:
      ExtraNotInstalled: a package is missing.
    """
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExtraNotInstalled(
            f"signatures of models need the package {missing[0]}, which is not installed. Install "
            f'it: pip install "tpuserve[signing]".'
        )


def check_key(path: Path, *, is_private: bool) -> None:
    """Check that a file holds an elliptic curve key in PEM, and that signatures can be made.

    Args:
      path: the file.
      is_private: whether the key must be a private key, which signs; otherwise a public key, which
        verifies.

    Raises:
      ExtraNotInstalled: see `check_installed`.
      InvalidSetting: the file cannot be read, or holds no such key.
    """
    check_installed()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    kind = "private" if is_private else "public"
    key: Any = None
    try:
        text = path.read_bytes()
        if is_private:
            key = serialization.load_pem_private_key(text, None)
        else:
            key = serialization.load_pem_public_key(text)
    except OSError as error:
        raise InvalidSetting(
            f"cannot read the signing key {path}: {error.strerror}. Give a file with a {kind} key."
        ) from error
    except (ValueError, TypeError):
        pass
    if not isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        raise InvalidSetting(
            f"{path} holds no {kind} key of an elliptic curve in PEM without a password. Make one: "
            f"openssl ecparam -name prime256v1 -genkey -noout -out private.pem; openssl ec -in "
            f"private.pem -pubout -out public.pem."
        )


def sign(directory: Path, private_key: Path) -> Path:
    """Sign all files below a directory, and write the signature to `SIGNATURE_FILE` in it.

    Args:
      directory: the directory of a SavedModel.
      private_key: the file with the private key.

    Returns:
      The path of the signature.

    Raises:
      ExtraNotInstalled, InvalidSetting: see `check_key`.
    """
    check_key(private_key, is_private=True)
    from model_signing import signing

    path = directory / SIGNATURE_FILE
    partial = path.with_name(path.name + ".partial")
    config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    config.set_hashing_config(_hashing_config(path))
    try:
        config.sign(directory, partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def verify(directory: Path, public_key: Path) -> None:
    """Check that the signature in a directory is the key's, and that it covers exactly the files.

    Args:
      directory: the directory of a SavedModel.
      public_key: the file with the public key.

    Raises:
      ExtraNotInstalled, InvalidSetting: see `check_key`.
      UntrustedModel: there is no signature, it is another key's, or the files have changed.
    """
    check_key(public_key, is_private=False)
    from model_signing import verifying

    path = directory / SIGNATURE_FILE
    if not path.is_file():
        raise UntrustedModel(
            f"{directory} has no {SIGNATURE_FILE}, and signatures are required. Sign it, as "
            f"`tpuserve export` does with --signing_key, or serve with "
            f"--model_signature_policy=off."
        )
    config = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    config.set_hashing_config(_hashing_config(path))
    try:
        config.verify(directory, path)
    except Exception as error:
        # The library raises exceptions of many classes for invalid files.
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise UntrustedModel(
            f"{path} does not verify with {public_key}: {reason}. Sign the model again with the "
            f"key's private part, or give the public key of who signed it."
        ) from error


def _hashing_config(signature: Path) -> Any:
    from model_signing import hashing

    # Without this, files of git would be left out of the signature.
    return hashing.Config().set_ignored_paths(paths=[signature], ignore_git_paths=False)
