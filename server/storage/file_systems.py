"""Opens the file systems of remote base paths with fsspec, and translates their errors."""

import errno
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tpuserve.errors import (
    BasePathNotFound,
    Code,
    CodedError,
    ExtraNotInstalled,
    TpuserveError,
    Unavailable,
)

# Scheme of a URI → the Python module that fsspec needs for URIs with this scheme.
_MODULES = {
    "gs": "gcsfs",
    "s3": "s3fs",
    "az": "adlfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
}
OBJECT_STORES = ("gs", "s3", "az", "hf")
"""The schemes of the object stores that the server opens with the credentials of its environment.

A file appears in such a store when it is complete."""
_GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
# Scheme of a URI → the advice in the error about missing or refused credentials; {} is "read" or
# "write to".
_CREDENTIALS = {
    "gs": f"Set {_GOOGLE_FILE} to the key file of an account that may {{}} it",
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may {} it",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY to a key that may {} it",
    "hf": "Check the name, and set HF_TOKEN to a token that may {} it",
    "http": "Put user name and password of the host into ~/.netrc",
    "https": "Put user name and password of the host into ~/.netrc",
}
# The names of exception classes with which fsspec's libraries report missing or refused credentials
# without an HTTP status.
_CREDENTIAL_ERRORS = {
    "ClientAuthenticationError",
    "DefaultCredentialsError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "RefreshError",
}
# Matches the parts of the libraries' error messages that differ for each request. They are removed,
# because the server logs an error again only if its message has changed.
_REQUEST_DETAILS = re.compile(r"\s*\(Request ID: [^)]*\)|\s*RequestId:.*", re.DOTALL)
_CONNECT_SECONDS = 10
# The longest time, in seconds, for which S3 or a web server may send nothing. After that the
# request fails.
_READ_SECONDS = 60


def check_installed(uri: str, purpose: str = "model base path") -> None:
    """Check that the Python packages for a URI are installed; `purpose` says what the URI is."""
    missing = [
        name
        for name in ("fsspec", _MODULES.get(scheme_of(uri), "fsspec"))
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ExtraNotInstalled(
            f"{purpose} {uri} needs the package {missing[0]}, which is not installed. "
            f'Install it: pip install ".[remote]".'
        )


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case, such as "gs"."""
    return uri.partition("://")[0].lower()


def open_file_system(uri: str) -> Any:
    """Return the fsspec file system of a URI.

    The library of the file system, such as gcsfs, finds the credentials in its usual places.
    """
    check_installed(uri)
    import fsspec

    scheme = scheme_of(uri)
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme == "s3":
        options.update(_s3_options(os.environ))
    elif scheme == "gs":
        # Turn off a feature of gcsfs that asks a second API, over gRPC, for the kind of each
        # bucket. The requests take minutes if this API does not exist, as in emulators of storage.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        if os.environ.get(_GOOGLE_FILE):
            # Use only the credentials in the file that GOOGLE_APPLICATION_CREDENTIALS names. By
            # default, gcsfs tries other credentials after these, and finally anonymous access.
            options["token"] = "google_default"
    elif scheme == "hf":
        # Create a new file system object for each call. An object from fsspec's cache of file
        # systems would answer from its own cache of listings, which can be out of date.
        options["skip_instance_cache"] = True
        # Read HF_ENDPOINT here: huggingface_hub itself reads this variable only during its import.
        options["endpoint"] = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    elif scheme in ("http", "https"):
        import aiohttp

        from server.storage.bounded_response import BoundedResponse

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        )
        # With trust_env, aiohttp uses the passwords in ~/.netrc and the environment variables that
        # configure proxies.
        options["client_kwargs"] = {
            "timeout": timeout,
            "trust_env": True,
            "response_class": BoundedResponse,
        }
    with translated_errors(uri):
        file_system: Any = fsspec.filesystem(scheme, **options)
        if "token" in options:
            _check_google_account(file_system)
        return file_system


def _check_google_account(file_system: Any) -> None:
    try:
        file_system.credentials.maybe_refresh()
    except Exception:
        # Remove the file system from fsspec's cache, so that the next listing reads the key file
        # again.
        file_system.clear_instance_cache()
        raise


def _s3_options(environ: Mapping[str, str]) -> dict[str, Any]:
    client: dict[str, Any] = {}
    endpoint = environ.get("S3_ENDPOINT", "")
    if endpoint:
        # S3_ENDPOINT and S3_USE_HTTPS are TensorFlow's environment variables. If S3_ENDPOINT is a
        # host without a scheme, S3_USE_HTTPS determines the scheme.
        is_plain = environ.get("S3_USE_HTTPS", "1") == "0"
        prefix = "" if "://" in endpoint else ("http://" if is_plain else "https://")
        client["endpoint_url"] = prefix + endpoint
    region = environ.get("AWS_REGION")
    if region:
        client["region_name"] = region
    config = {
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": _READ_SECONDS,
        "retries": {"max_attempts": 2},
    }
    return {"client_kwargs": client, "config_kwargs": config}


@contextmanager
def translated_errors(uri: str, *, is_written: bool = False) -> Iterator[None]:
    """Translate the errors of a file system's library into subclasses of TpuserveError.

    This is a context manager, which translates the errors of its body. `is_written` says whether
    the body writes to the file system.

    Raises:
      Unavailable: there was any other error, such as a failed connection.
    """
    try:
        yield
    except TpuserveError:
        raise
    except Exception as error:
        raise _translate(error, uri, is_written) from error


def _translate(error: Exception, uri: str, is_written: bool) -> TpuserveError:
    scheme, reason = scheme_of(uri), _reason(error)
    done, do = ("written", "write to") if is_written else ("read", "read")
    if scheme in _CREDENTIALS and _is_denied(error, scheme):
        return CodedError(
            f"{uri} cannot be {done} with the credentials of this server: {reason}. "
            f"{_remedy(scheme, do)}.",
            Code.PERMISSION_DENIED,
        )
    if is_written:
        return _unavailable(uri, done, reason)
    if isinstance(error, FileNotFoundError) or _http_status(error) == 404:
        return BasePathNotFound(
            f"{uri} does not exist, or has no files. Give a base path that exists, as "
            f"{scheme}://{_EXAMPLES[scheme]}."
        )
    # huggingface_hub raises a ValueError for a path that names no repository. Report this as
    # BasePathNotFound.
    if scheme == "hf" and isinstance(error, ValueError):
        return BasePathNotFound(
            f"{uri} is no path of the hub: {reason}. Give a base path such as "
            f"hf://{_EXAMPLES[scheme]}."
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return CodedError(
            f"{uri} does not fit on the disk of the model cache: {reason}. Free space, or set "
            f"--model_cache_dir to a directory on a larger disk.",
            Code.RESOURCE_EXHAUSTED,
        )
    return _unavailable(uri, done, reason)


def _unavailable(uri: str, done: str, reason: str) -> TpuserveError:
    return Unavailable(
        f"{uri} cannot be {done}: {reason}. The server tries again; check the address and the "
        f"network if this goes on."
    )


def _is_denied(error: Exception, scheme: str) -> bool:
    """Return whether an error says that credentials are missing, wrong or insufficient."""
    if isinstance(error, PermissionError) or _http_status(error) in (401, 403):
        return True
    if any(map(_is_of_credentials, _causes(error))):
        return True
    if scheme == "gs":
        # gcsfs raises an OSError with the text "Forbidden: ..." for the HTTP status 403, and an
        # IsADirectoryError if GOOGLE_APPLICATION_CREDENTIALS names a directory, not a key file.
        return str(error).startswith("Forbidden: ") or isinstance(error, IsADirectoryError)
    # adlfs raises a ValueError if no environment variable names a storage account. Report this as
    # missing credentials.
    return scheme == "az" and isinstance(error, ValueError)


def _is_of_credentials(error: BaseException) -> bool:
    return any(base.__name__ in _CREDENTIAL_ERRORS for base in type(error).__mro__)


def _remedy(scheme: str, do: str) -> str:
    file, advice = os.environ.get(_GOOGLE_FILE), _CREDENTIALS[scheme].format(do)
    if scheme == "gs" and file:
        return advice.replace(_GOOGLE_FILE, f"{_GOOGLE_FILE}, which is {file},")
    return advice


_EXAMPLES = {
    "gs": "BUCKET/models/half",
    "s3": "BUCKET/models/half",
    "az": "CONTAINER/models/half",
    "hf": "USER/REPOSITORY",
    "http": "HOST/models/half",
    "https": "HOST/models/half",
}


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _http_status(error: Exception) -> int | None:
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            # In the errors of botocore, the library for S3, `response` is a dictionary.
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        for value in (cause, response):
            for name in ("status", "status_code", "code"):
                if str(status := getattr(value, name, None)).isdecimal():
                    return int(str(status))
    return None


def _reason(error: Exception) -> str:
    """Return the text of an error in one line, without a full stop."""
    text = str(error)
    for cause in filter(_is_of_credentials, _causes(error)):
        # An error of google-auth has several arguments: texts, other errors, and responses of
        # Google. Leave the responses out, because they are long.
        parts = [str(arg).rstrip(".") for arg in cause.args if isinstance(arg, (str, Exception))]
        text = ": ".join(parts)
        break
    text = _REQUEST_DETAILS.sub("", text)
    return " ".join(text.split()).rstrip(".") or type(error).__name__
