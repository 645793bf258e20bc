from pathlib import Path

import pytest

from tpuserve.compilation.cache import CompileCache
from tpuserve.compilation.stats import CompileResult, CompileStats
from tpuserve.files.disk_cache import ENVIRONMENT_NAME

FIGURES = CompileStats(1024.0, 640.0, 256, 128, 0, 4096, 1e-6, 0, 0.5)


@pytest.mark.parametrize("outcome", [CompileResult(FIGURES), CompileResult(error="out of memory")])
def test_a_stored_result_is_found_by_its_content(tmp_path: Path, outcome: CompileResult) -> None:
    CompileCache(tmp_path).store(outcome, "module", "v5e:1x1")
    assert CompileCache(tmp_path).find("module", "v5e:1x1") == outcome


def test_other_content_is_not_found(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.store(CompileResult(FIGURES), "module", "v5e:1x1")
    assert cache.find("module", "v6e:1x1") is None
    assert cache.find("modulev5e:1x1") is None


@pytest.mark.parametrize("rubbish", ["", "{", "[]", '{"figures": {"flops": 1}, "error": null}'])
def test_a_damaged_entry_is_ignored_and_replaced(tmp_path: Path, rubbish: str) -> None:
    cache = CompileCache(tmp_path)
    cache.store(CompileResult(FIGURES), "module")
    (entry,) = tmp_path.rglob("*.json")
    entry.write_text(rubbish)
    assert cache.find("module") is None
    cache.store(CompileResult(FIGURES), "module")
    assert cache.find("module") == CompileResult(FIGURES)


def test_a_cache_without_a_directory_stores_nothing() -> None:
    cache = CompileCache(None)
    cache.store(CompileResult(FIGURES), "module")
    assert cache.find("module") is None


def test_an_unwritable_cache_stores_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CompileCache(tmp_path / "file")
    cache.store(CompileResult(FIGURES), "module")
    assert cache.find("module") is None


def test_an_environment_variable_names_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_NAME, str(tmp_path))
    CompileCache.for_user().store(CompileResult(FIGURES), "module")
    assert list((tmp_path / "compile").rglob("*.json"))
