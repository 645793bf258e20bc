"""SIGTERM and SIGINT end a command, even while Python frees an object."""

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from tpuserve.commands.exit_on_sigterm import exit_on_sigterm


@pytest.fixture(autouse=True)
def sigint_handler() -> Iterator[None]:
    """Handle SIGINT as in a terminal: a background process of a shell ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


class SignalOnDelete:
    """Raises a signal when it is freed."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


def free_and_go_on(number: int) -> None:
    SignalOnDelete(number)
    time.sleep(60)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_whose_exception_is_discarded_is_raised_again(
    number: int, error: type[BaseException]
) -> None:
    before = sys.unraisablehook
    with pytest.raises(error), exit_on_sigterm():
        free_and_go_on(number)
    assert sys.unraisablehook is before


def test_sigterm_exits_with_143_and_handlers_are_restored() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    with pytest.raises(SystemExit) as raised, exit_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert raised.value.code == 143
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
