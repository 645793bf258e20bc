import pytest
import tensorflow as tf

from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous

CANCELLED = tf.errors.CancelledError(None, None, "the session was closed")
LOST = tf.errors.UnavailableError(None, None, "a worker has gone")
CLOSED = RuntimeError("Attempted to use a closed Session.")
CLOSED_ON_SERVER = tf.errors.FailedPreconditionError(None, None, "Session is closed.")
CAUSE, LATER = ValueError("out of paper"), ValueError("out of ink")


def catch_error(main: Exception | None, *recorded: Exception) -> Exception | None:
    rendezvous = ErrorRendezvous()
    try:
        with rendezvous:
            for recorded_error in recorded:
                rendezvous.record("infeed", recorded_error)
            if main is not None:
                raise main
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    ("main", "recorded", "expected"),
    [
        (CANCELLED, (CAUSE,), CAUSE),
        (CAUSE, (CANCELLED, CLOSED), CAUSE),
        (CAUSE, (CLOSED_ON_SERVER,), CAUSE),
        (LATER, (LOST, CAUSE), CAUSE),
        (CLOSED, (LOST,), LOST),
        (LOST, (CANCELLED,), LOST),
        (None, (CAUSE,), CAUSE),
        # A MonitoredSession takes these errors for the end of the input, and raises nothing.
        (None, (CANCELLED,), None),
        (None, (LOST,), None),
        (None, (), None),
    ],
)
def test_the_root_cause_is_raised(
    main: Exception | None, recorded: tuple[Exception, ...], expected: Exception | None
) -> None:
    assert catch_error(main, *recorded) is expected


def test_consequences_of_an_error_are_not_raised() -> None:
    error = catch_error(CANCELLED, CAUSE)
    assert error is not None
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_ctrl_c_is_not_recorded_as_an_error() -> None:
    rendezvous = ErrorRendezvous()
    ended: list[str] = []
    rendezvous.on_exit(lambda: ended.append("thread"))
    rendezvous.record("infeed", CAUSE)
    with pytest.raises(KeyboardInterrupt), rendezvous:
        raise KeyboardInterrupt
    assert ended == ["thread"]
