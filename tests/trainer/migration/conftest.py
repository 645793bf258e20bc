from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what is found in installed packages in a directory of the test's own."""
    directory = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TPUSERVE_CACHE_DIR", str(directory))
    return directory
