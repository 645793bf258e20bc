"""A session that runs the TPU computation of its graph on PJRT devices."""

from functools import partial
from typing import Any

from trainer.backends.tpu.pjrt.device_loop import DeviceLoop, StepStream
from trainer.backends.tpu.pjrt.variable_uses import VariableUses
from trainer.tensorflow_internals import session_interface


class PjrtSession(session_interface.SessionInterface):
    """Wraps a tf.compat.v1.Session on the CPU, and runs the loop of steps on PJRT devices.

    A `run` whose fetches depend on the end of the loop first runs the loop on the devices, which
    keep the variables.
    """

    def __init__(self, session: Any, loop: DeviceLoop) -> None:
        self._session, self._loop = session, loop
        self._stream = StepStream()
        self._uses = VariableUses(session.graph, loop.done, loop.variables.indices)
        loop.variables.forget_devices()
        # A callable takes half the time of `run`, but no variables from the devices.
        uses = self._uses.find_uses(loop.batch, ())
        self._read_batch = (
            partial(self.run, loop.batch)
            if uses.reads or uses.writes
            else session.make_callable(loop.batch)
        )

    @property
    def graph(self) -> Any:
        """The tf.Graph of the session."""
        return self._session.graph

    @property
    def sess_str(self) -> Any:
        """The target of the session."""
        return self._session.sess_str

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run fetches in the session; run the loop first if a fetch depends on its end.

        A fetch that depends on the results of a step waits for them.
        """
        loop, stream = self._loop, self._stream
        if fetches is loop.feed:
            (iterations,) = feed_dict.values()
            return loop.read_input(self._read_batch, stream, iterations)
        if fetches is loop.end_feed or fetches is loop.end_results:
            ended = stream.batches if fetches is loop.end_feed else stream.results
            ended.is_ended = True
            return None
        uses = self._uses.find_uses(fetches, feed_dict or {})
        if uses.runs_loop:
            loop.run(self._session, stream, feed_dict or {})
        if uses.receives:
            results = zip(loop.received, stream.results.get(), strict=True)
            feed_dict = {**(feed_dict or {}), **dict(results)}
        if not uses.reads and not uses.writes:
            return self._session.run(fetches, feed_dict, options, run_metadata)
        with loop.lock:
            loop.variables.copy_to_session(self._session, uses.reads | uses.writes)
        try:
            # Call `run` without the lock. The call can wait for results of steps, and another
            # thread needs the lock to dispatch these steps.
            return self._session.run(fetches, feed_dict, options, run_metadata)
        finally:
            with loop.lock:
                loop.variables.mark_changed_in_session(uses.writes)

    def close(self) -> None:
        """Close the session, and end all waits for batches and results."""
        self._stream.batches.is_closed = self._stream.results.is_closed = True
        self._session.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
