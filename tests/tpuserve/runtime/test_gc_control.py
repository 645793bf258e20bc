import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuserve.runtime import gc_control


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    finders = list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    gc.unfreeze()


def test_nothing_is_collected_meanwhile_and_what_was_made_never_is() -> None:
    before = gc.get_freeze_count()
    with gc_control.gc_disabled():
        assert not gc.isenabled()
        made = [[] for _ in range(10)]  # type: ignore[var-annotated]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_collections_go_on_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), gc_control.gc_disabled():
        print(1 / 0)
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with gc_control.gc_disabled():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("line", ["", "raise ImportError('half way')"])
def test_the_first_import_of_a_module_is_spared_and_collections_go_on_after_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "heavy.py").write_text(f"import gc\nimport sys\nsys.seen = gc.isenabled()\n{line}")
    gc_control.disable_gc_on_import("heavy")
    try:
        __import__("heavy")
        assert not line
    except ImportError:
        assert line
    finally:
        sys.modules.pop("heavy", None)
    assert sys.seen is False  # type: ignore[attr-defined]
    assert gc.isenabled()
    del sys.seen  # type: ignore[attr-defined]


def test_a_module_that_is_not_there_is_missing_as_ever() -> None:
    gc_control.disable_gc_on_import("no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        __import__("no_such_module")
    assert gc.isenabled()
