"""The thread that polls grpcio's completion queue, and the one that takes its place.

Uses grpcio's private API, which `grpcio_compat` probes.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from grpc import _server
from grpc._cython import cygrpc

# How long a thread waits for an event of the completion queue, in seconds.
_POLL_SECONDS = 1.0
# The interval at which the thread that polls is watched while it handles events, in seconds.
_TICK_SECONDS = 0.01

logger = logging.getLogger(__name__)


class EventPoller:
    """Handles the events of a server in one thread.

    While an event holds up this thread, as a call that runs in it can, another thread polls.
    """

    def __init__(self) -> None:
        self._server_state: Any = None
        self._poller = threading.Thread(target=self._poll, name="grpc-poll", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="grpc-poll-watch", daemon=True)
        # When the thread that polls has begun to handle an event, in seconds; None while it waits.
        self._busy_since: float | None = None
        self._has_been_busy = threading.Event()
        self._is_closed = threading.Event()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the one that polls, and not the one in its place."""
        return threading.current_thread() is self._poller

    def start(self, server_state: Any) -> None:
        """Start the threads; `server_state` is grpcio's private state of a started server."""
        self._server_state = server_state
        self._poller.start()
        self._watcher.start()

    def close(self) -> None:
        """End the threads. The caller must have stopped the gRPC server."""
        self._end()
        if self._server_state is not None:
            self._server_state.completion_queue.shutdown()
            for thread in (self._poller, self._watcher):
                if thread.ident is not None:
                    thread.join(_POLL_SECONDS)

    def _end(self) -> None:
        self._is_closed.set()
        self._has_been_busy.set()

    def _poll(self) -> None:
        while self._handle_next(self._begin):
            self._busy_since = None

    def _begin(self) -> None:
        self._busy_since = time.monotonic()
        if not self._has_been_busy.is_set():
            self._has_been_busy.set()

    def _watch(self) -> None:
        """Poll in this thread while an event holds up the thread that polls."""
        while self._has_been_busy.wait():
            self._has_been_busy.clear()
            if self._is_closed.wait(_TICK_SECONDS):
                return
            since = self._busy_since
            if since is None:
                continue
            self._has_been_busy.set()
            while self._busy_since == since and time.monotonic() - since > _TICK_SECONDS:
                if not self._handle_next():
                    return

    def _handle_next(self, begin: Callable[[], object] = lambda: None) -> bool:
        """Handle the next event, if one comes within `_POLL_SECONDS`.

        Args:
          begin: called when the event has come.

        Returns:
          False after the end of the completion queue.
        """
        state = self._server_state
        try:
            event = state.completion_queue.poll(time.time() + _POLL_SECONDS)
        except Exception:
            # There may be too little memory for a message. The next one may be smaller.
            logger.exception("an event of gRPC cannot be received")
            return not self._is_closed.wait(_TICK_SECONDS)
        if event.completion_type == cygrpc.CompletionType.queue_shutdown:
            return False
        if state.server_deallocated:
            _server._begin_shutdown_once(state)
        if event.completion_type != cygrpc.CompletionType.queue_timeout:
            begin()
            self._process(event)
        return True

    def _process(self, event: Any) -> None:
        try:
            if not _server._process_event_and_continue(self._server_state, event):
                # After the last event of a server that was stopped, shut down the completion queue,
                # which ends the threads.
                self._end()
                self._server_state.completion_queue.shutdown()
        except Exception:
            logger.exception("an event of gRPC cannot be handled")
            self._recover(event)

    def _recover(self, event: Any) -> None:
        """After an exception in the handling of an event, let the server accept further calls."""
        state = self._server_state
        if event.tag is not _server._REQUEST_CALL_TAG:
            return
        with state.lock:
            if state.stage is _server._ServerStage.STARTED and event.tag not in state.due:
                _server._request_call(state)
        if event.success:
            # Cancel the call that the event began, because no handler will answer it.
            event.call.cancel()
