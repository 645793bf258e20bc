"""Signs models and verifies the signatures, in the format of OpenSSF Model Signing.

A cryptographic signature proves that the owner of a private key has approved the files of a model.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

from tpuserve.errors import Code, CodedError, ExtraNotInstalled, InvalidSetting

SIGNATURE_FILE = "model.sig"
"""The file of the signature, in the directory that it signs."""

_MODULES = ("model_signing", "OpenSSL")


def check_installed() -> None:
    """Check that the optional packages for signing models are installed."""
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExtraNotInstalled(
            f"signatures of models need the package {missing[0]}, which is not installed. Install "
            f'it: pip install ".[signing]".'
        )


def check_key(path: Path, *, is_private: bool) -> None:
    """Check that a file holds a key for signing models: an elliptic curve key in PEM format.

    Args:
      is_private: True if it must be a private key, to sign; False for a public key, to verify.
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
    """Sign all files below a directory, and write the signature to `SIGNATURE_FILE` in it."""
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
    """Check that a model was signed with a key, and that its files have not changed since then.

    Raises:
      CodedError: there is no signature, it was made with another key, or a file was added,
        removed or changed.
    """
    check_key(public_key, is_private=False)
    from model_signing import verifying

    path = directory / SIGNATURE_FILE
    if not path.is_file():
        raise CodedError(
            f"{directory} has no {SIGNATURE_FILE}, and signatures are required. Sign it, as "
            f"`tpuserve export` does with --signing_key, or serve with "
            f"--model_signature_policy=off.",
            Code.PERMISSION_DENIED,
        )
    config = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    config.set_hashing_config(_hashing_config(path))
    try:
        config.verify(directory, path)
    except Exception as error:
        # Catch all exceptions: the package model_signing raises many classes for invalid files.
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise CodedError(
            f"{path} does not verify with {public_key}: {reason}. Sign the model again with the "
            f"key's private part, or give the public key of the signer.",
            Code.PERMISSION_DENIED,
        ) from error


def _hashing_config(signature: Path) -> Any:
    from model_signing import hashing

    # Sign files such as .gitignore too. By default, the package model_signing ignores files of git,
    # so that they could be changed without invalidating the signature.
    return hashing.Config().set_ignored_paths(paths=[signature], ignore_git_paths=False)
