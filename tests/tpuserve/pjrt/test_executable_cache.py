"""Executables are kept on disk from one process to the next."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpuserve.pjrt import executable_cache
from tpuserve.pjrt.executable_cache import ExecutableCache

jax = pytest.importorskip("jax")

jax.config.update("jax_platforms", "cpu")


@pytest.fixture
def device() -> Any:
    return jax.devices("cpu")[0]


def compile_double() -> Any:
    return jax.jit(lambda x: x * 2).lower(np.ones(3, np.float32)).compile()


def store(directory: Path, device: Any, content: str = "double") -> Path:
    """Store an executable, and return its file."""
    cache = ExecutableCache(directory)
    key = cache.make_key(device, content)
    cache.store(key, compile_double())
    return directory / f"{key}.executable"


def find_executable(directory: Path, device: Any, content: str = "double") -> Any:
    cache = ExecutableCache(directory)
    return cache.find(cache.make_key(device, content), device)


def test_stored_executable_is_found_by_another_cache_of_the_directory(
    tmp_path: Path, device: Any
) -> None:
    store(tmp_path / "new" / "executables", device)
    executable = find_executable(tmp_path / "new" / "executables", device)
    assert executable(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    assert find_executable(tmp_path / "new" / "executables", device, "triple") is None


_FIND = """
import sys
from pathlib import Path
import jax, numpy as np
jax.config.update("jax_platforms", "cpu")
from tpuserve.pjrt.executable_cache import ExecutableCache
device = jax.devices("cpu")[0]
cache = ExecutableCache(Path(sys.argv[1]))
found = cache.find(cache.make_key(device, "double"), device)
print(found(np.ones(3, np.float32)).tolist())
"""


@pytest.mark.slow
def test_stored_executable_is_found_by_another_process(tmp_path: Path, device: Any) -> None:
    tmp_path.chmod(0o700)
    store(tmp_path, device)
    result = subprocess.run(
        [sys.executable, "-c", _FIND, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[2.0, 2.0, 2.0]"


@pytest.mark.parametrize("size", [0, 10, -1])
def test_damaged_file_counts_as_none_and_is_reported(
    tmp_path: Path, device: Any, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = store(tmp_path, device)
    path.write_bytes(path.read_bytes()[:size])
    assert find_executable(tmp_path, device) is None
    assert caplog.messages == [f"{path} is compiled again: the file is damaged"]
    store(tmp_path, device)
    assert find_executable(tmp_path, device) is not None


def test_nothing_is_stored_without_a_directory(device: Any) -> None:
    cache = ExecutableCache(None)
    cache.store("key", compile_double())
    assert cache.find("key", device) is None


def test_directory_that_cannot_be_created_is_reported_once(
    tmp_path: Path, device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache = ExecutableCache(tmp_path / "file" / "executables")
    cache.store("key", compile_double())
    assert cache.find("key", device) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "executables are not read from" in record.message


def test_full_disk_is_reported_once_and_ends_the_saving(
    tmp_path: Path,
    device: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    cache = ExecutableCache(tmp_path)
    cache.store("one", compile_double())
    cache.store("two", compile_double())
    (record,) = caplog.records
    assert "No space left on device" in record.message
    assert os.listdir(tmp_path) == []


def test_read_only_directory_is_read_and_reported(
    tmp_path: Path,
    device: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store(tmp_path, device)
    # Replace os.access: the tests may run as root, who can write to every directory.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert find_executable(tmp_path, device) is not None
    store(tmp_path, device, "triple")
    assert len(os.listdir(tmp_path)) == 1
    assert all("cannot be written" in record.message for record in caplog.records)


def test_directory_that_others_may_write_is_not_used(
    tmp_path: Path, device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path, device)
    tmp_path.chmod(0o777)
    assert find_executable(tmp_path, device) is None
    assert "other users can write to it" in caplog.text


def test_oldest_files_are_deleted_where_all_are_too_large(
    tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store(tmp_path, device, "old")
    os.utime(old, (1, 1))
    monkeypatch.setattr(executable_cache, "_MAX_BYTES", old.stat().st_size * 3 // 2)
    new = store(tmp_path, device, "new")
    assert os.listdir(tmp_path) == [new.name]


def test_files_that_another_process_deletes_meanwhile_do_no_harm(
    tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = store(tmp_path, device)
    loads = executable_cache.pickle.loads  # type: ignore[attr-defined]

    def delete_and_load(content: bytes) -> Any:
        path.unlink()
        return loads(content)

    with monkeypatch.context() as patch:
        patch.setattr(executable_cache.pickle, "loads", delete_and_load)  # type: ignore[attr-defined]
        assert find_executable(tmp_path, device)(np.ones(3, np.float32)).tolist() == [2, 2, 2]

    # `glob` lists a link whose target is missing, as it lists a file that is deleted after that.
    (tmp_path / "deleted.executable").symlink_to(tmp_path / "missing")
    assert store(tmp_path, device).exists()
    assert not caplog.text
