"""Starts a model server in a separate process, for tests and notebooks."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from tpuserve.client import AsyncClient, Client
from tpuserve.errors import InvalidSetting, ServerNotStarted
from tpuserve.files.uris import absolute_path_or_uri

HOST = "127.0.0.1"
_OWN_FLAGS = (
    *("host", "port", "rest_api_port", "model_name", "model_base_path", "model_config_file"),
)
# The line of the log in both formats of --log_format.
_READY = re.compile(
    r' server\.(app|supervisor): ready$|"logger":"server\.(app|supervisor)","message":"ready"',
    re.MULTILINE,
)
_POLL_SECONDS = 0.05
# The time in seconds after which a server that is asked to stop is killed. By default, the server
# waits up to 30 seconds for the requests in flight.
_STOP_SECONDS = 60


class LocalServer:
    """A running model server in a separate process, which listens on free ports of 127.0.0.1.

    `tpuserve.serve` creates it.
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        timeout_s: float,
        flags: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        _check_arguments(models, flags)
        self._resources = ExitStack()
        with ExitStack() as on_error:
            on_error.callback(self._resources.close)
            directory = Path(self._resources.enter_context(tempfile.TemporaryDirectory()))
            config = directory / "models.config"
            config.write_text(_model_config(models), encoding="utf-8")
            self._log_path = directory / "log"
            # The whole log after the end of the server, when the file is removed.
            self._last_log: str | None = None
            with ExitStack() as reserved:
                grpc_port, rest_port = (_reserve_port(reserved) for _ in range(2))
                self._process = self._start(
                    {
                        "fail_if_no_model_versions_found": True,
                        **flags,
                        "host": HOST,
                        "port": grpc_port,
                        "rest_api_port": rest_port,
                        "model_config_file": config,
                    },
                    environment,
                )
                on_error.callback(self._kill)
                self._wait_until_ready(timeout_s)
            on_error.pop_all()
        is_secure = bool(flags.get("ssl_config_file"))
        self.rest_url = f"{'https' if is_secure else 'http'}://{HOST}:{rest_port}"
        self.grpc_url = f"{'grpcs' if is_secure else 'grpc'}://{HOST}:{grpc_port}"

    @property
    def pid(self) -> int:
        """The process ID of the server."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The text that the server has logged since its start, also after its end."""
        return self._read_log() if self._last_log is None else self._last_log

    def client(self, protocol: Literal["rest", "grpc"] = "rest", **options: Any) -> Client:
        """Create a client of the server.

        Args:
          options: other arguments of `tpuserve.client.Client`, such as api="v2".
        """
        return Client(self._url(protocol), **options)

    def async_client(
        self, protocol: Literal["rest", "grpc"] = "rest", **options: Any
    ) -> AsyncClient:
        """Create an asyncio client of the server; the arguments are those of `client`."""
        return AsyncClient(self._url(protocol), **options)

    def stop(self) -> None:
        """Stop the server and wait until its process has ended.

        The server answers the requests in flight before it ends.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill()
        self._close_stdin()
        if self._last_log is None:
            self._last_log = self._read_log()
        self._resources.close()

    def __enter__(self) -> "LocalServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read_log(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def _url(self, protocol: str) -> str:
        urls = {"rest": self.rest_url, "grpc": self.grpc_url}
        if protocol not in urls:
            raise InvalidSetting(f"the protocol is {protocol!r}. Give 'rest' or 'grpc'.")
        return urls[protocol]

    def _start(
        self, flags: Mapping[str, Any], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        command = ["-m", "tpuserve.local_server.child", "tpuserve", "serve"]
        arguments = [f"--{name}={_format_value(value)}" for name, value in flags.items()]
        with self._log_path.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, *command, *arguments],
                # The server stops when the pipe to its standard input is closed. The system closes
                # the pipe when this process ends, even if it is killed.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Start a new session, so that Ctrl-C in a notebook interrupts the cell but does not
                # stop the server.
                start_new_session=True,
                env={**os.environ, **environment},
            )

    def _wait_until_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not _READY.search(self.log):
            status = self._process.poll()
            if status is not None:
                raise ServerNotStarted(
                    f"the server has ended with status {status} before it was ready: "
                    f"{self._last_log_line()}"
                )
            if time.monotonic() > deadline:
                raise ServerNotStarted(
                    f"the server is not ready after {timeout_s:g} s; its last log line is: "
                    f"{self._last_log_line()}. Give a longer timeout_s, or a smaller model."
                )
            time.sleep(_POLL_SECONDS)

    def _last_log_line(self) -> str:
        lines = self.log.strip().splitlines() or ["(nothing)"]
        return lines[-1].removeprefix("Error: ")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


def serve(
    models: Mapping[str, str | os.PathLike[str]],
    *,
    timeout_s: float = 300.0,
    environment: Mapping[str, str] | None = None,
    **flags: Any,
) -> LocalServer:
    """Start a server for models in a separate process, on free ports, and wait until it is ready.

        with tpuserve.serve({"digits": "export"}) as server:
            outputs = server.client().predict("digits", {"image": images})

    The server stops at the end of the with block, or with `stop`.

    Args:
      models: name → directory that has a numbered directory for each version, .keras file, or a
        URI as for --model_base_path.
      flags: flags of `tpuserve serve`, such as enable_batching=True.
    """
    return LocalServer(models, timeout_s, flags, environment or {})


def _check_arguments(
    models: Mapping[str, str | os.PathLike[str]], flags: Mapping[str, Any]
) -> None:
    if not models:
        raise InvalidSetting('no model is given. Give at least one, such as {"digits": "export"}.')
    for name in _OWN_FLAGS:
        if name in flags:
            raise InvalidSetting(
                f"{name} is given, which tpuserve.serve sets itself. Leave it out, or run "
                f"`tpuserve serve`."
            )


def _model_config(models: Mapping[str, str | os.PathLike[str]]) -> str:
    entries = [
        f"  config {{ name: {_quote(name)} base_path: {_quote(absolute_path_or_uri(path))} "
        f'model_platform: "tensorflow" }}\n'
        for name, path in models.items()
    ]
    return f"model_config_list {{\n{''.join(entries)}}}\n"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reserve_port(reserved: ExitStack) -> int:
    bound = reserved.enter_context(socket.socket())
    # Set SO_REUSEADDR, as the server does. If both sockets have this option, the server can bind
    # the port while this socket is open.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, 0))
    port: int = bound.getsockname()[1]
    return port
