#!/usr/bin/env python3
"""Ends with status 0 if the server in this container is ready, else with status 1.

The flags and the environment variables of the container's first process, the server, say where and
how the server answers: --rest_api_port, or the port of Vertex AI or SageMaker; --host;
--ssl_config_file; --api_keys_file.
"""

import argparse
import http.client
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from server.config.cloud import flags_from_environment
from tpuserve.errors import TpuserveError

SECONDS = 4
# The entrypoint's port of REST.
DEFAULT_PORT = "8501"


def check_readiness(command_line: Sequence[str], environment: Mapping[str, str]) -> str:
    """Ask a server whether it is ready.

    Args:
      command_line: the command and the flags of the server.
      environment: the environment variables of the server.

    Returns:
      Why the server is not ready; "" if it is ready.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--rest_api_port", "--host", "--ssl_config_file", "--api_keys_file"):
        parser.add_argument(flag, default="")
    # An init process such as that of `docker run --init` writes "--" before the server's command.
    # argparse would take all flags after "--" for positional arguments.
    flags, _ = parser.parse_known_args([text for text in command_line if text != "--"])
    try:
        port = flags.rest_api_port or read_port(environment)
        if port == "0":
            return "--rest_api_port=0 turns REST off. Give REST a port, or run no health check."
        key = {}
        if flags.api_keys_file:
            key["Authorization"] = f"Bearer {read_key(Path(flags.api_keys_file))}"
        with closing(connect(flags.host, int(port), bool(flags.ssl_config_file))) as connection:
            connection.request("GET", "/readyz", headers=key)
            response = connection.getresponse()
            answer = response.read().decode("utf-8", "replace").strip()
        return "" if response.status == 200 else f"status {response.status} of /readyz: {answer}"
    except (OSError, ValueError, http.client.HTTPException, TpuserveError) as error:
        return f"the health check could not ask the server: {error}"


def connect(host: str, port: int, has_tls: bool) -> http.client.HTTPConnection:
    """Return a connection, not yet open, to a server on this machine.

    Args:
      host: the address on which the server listens, as in --host; "" for all addresses.
      port: the port of REST.
      has_tls: whether the server speaks TLS.
    """
    address = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    if not has_tls:
        return http.client.HTTPConnection(address, port, timeout=SECONDS)
    # The certificate is for the name by which clients reach the server, not for this address.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address, port, timeout=SECONDS, context=context)


def read_port(environment: Mapping[str, str]) -> str:
    """Return the port of REST that environment variables set, or else the image's default."""
    flag = flags_from_environment(environment).get("rest_api_port")
    return str(flag.value) if flag else DEFAULT_PORT


def read_key(path: Path) -> str:
    """Return the first key of a file of API keys."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    return next((line for line in lines if line and not line.startswith("#")), "")


def find_server(processes: Path) -> Path:
    """Return the directory of the server's process in the file system /proc.

    The server is the container's first process, or the only child of an init process, such as that
    of `docker run --init`.

    Args:
      processes: the directory /proc.
    """
    first = processes / "1"
    if "--" in read_texts(first / "cmdline"):
        children = " ".join(read_texts(first / "task" / "1" / "children")).split()
        if len(children) == 1:
            return processes / children[0]
    return first


def read_texts(file: Path) -> list[str]:
    """Return the zero-terminated texts of a file in /proc; [] if the file cannot be read."""
    try:
        return os.fsdecode(file.read_bytes()).rstrip("\0").split("\0")
    except OSError:
        return []


if __name__ == "__main__":
    server = find_server(Path("/proc"))
    variables = (text.partition("=") for text in read_texts(server / "environ"))
    environment = {**os.environ, **{name: value for name, _, value in variables}}
    sys.exit(check_readiness(read_texts(server / "cmdline"), environment) or 0)
