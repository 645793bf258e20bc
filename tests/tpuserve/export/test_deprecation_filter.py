import threading

import pytest
from tensorflow.python.util import deprecation

from tpuserve.export.deprecation_filter import without_deprecations


def test_warnings_are_suppressed_inside_and_restored_after_an_error() -> None:
    inside = []

    def fail() -> None:
        with without_deprecations():
            inside.append(deprecation._PRINT_DEPRECATION_WARNINGS)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert inside == [False]
    assert deprecation._PRINT_DEPRECATION_WARNINGS


def test_threads_may_leave_in_any_order() -> None:
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with without_deprecations():
            entered.set()
            assert leave.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(60)
    with without_deprecations():
        leave.set()
        thread.join()
        assert not deprecation._PRINT_DEPRECATION_WARNINGS
    assert deprecation._PRINT_DEPRECATION_WARNINGS
