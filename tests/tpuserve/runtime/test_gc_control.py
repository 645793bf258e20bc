"""The garbage collector pauses inside the block, and later ignores objects created in it."""

import gc

import pytest

from tpuserve.runtime import gc_control


@pytest.fixture(autouse=True)
def _without_garbage() -> None:
    # The block would keep the garbage of earlier tests forever.
    gc.collect()


@pytest.mark.slow
def test_objects_created_in_the_block_are_never_collected() -> None:
    before = gc.get_freeze_count()
    with gc_control.gc_disabled():
        assert not gc.isenabled()
        objects = [[] for _ in range(10)]  # type: ignore[var-annotated]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(objects)


def test_collector_is_enabled_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), gc_control.gc_disabled():
        print(1 / 0)
    assert gc.isenabled()


def test_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with gc_control.gc_disabled():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
