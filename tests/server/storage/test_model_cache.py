"""The cache of downloaded versions is bounded and shared, and holds complete versions only."""

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server.storage.model_cache import Lease, ModelCache
from tpuserve.errors import Cancelled, Code, CodedError, Unavailable

KB = 1000
# The exit status of a process that a test ends.
KILLED = 9


def acquire(cache: ModelCache, fingerprint: str, size: int = KB) -> Lease:
    def download(directory: Path) -> None:
        directory.mkdir()
        (directory / "saved_model.pb").write_bytes(bytes(size))

    return cache.acquire(cache.directory_of(fingerprint, 1), size, download, lambda: False)


def entries(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


def acquire_and_die_at_the_first_removed_file(root: Path) -> None:
    """Evict a version in a process that ends at once when it has removed the first file."""
    unlink = os.unlink

    def unlink_and_die(path: Any, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        os._exit(KILLED)

    os.unlink = unlink_and_die
    acquire(ModelCache(root, 3 * KB), "b", 2 * KB)


def refuse_download(directory: Path) -> None:
    pytest.fail(f"{directory} was downloaded")


def test_version_is_downloaded_once(tmp_path: Path) -> None:
    acquire(ModelCache(tmp_path, 0), "a").close()
    cache = ModelCache(tmp_path, 0)
    directory = cache.directory_of("a", 1)
    cache.acquire(directory, KB, refuse_download, lambda: False).close()
    assert (directory / "saved_model.pb").read_bytes() == bytes(KB)


def test_failed_download_leaves_nothing_and_is_repeated(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, 0)

    def fail(directory: Path) -> None:
        directory.mkdir()
        (directory / "saved_model.pb").write_bytes(b"half")
        raise Unavailable("cut")

    with pytest.raises(Unavailable):
        cache.acquire(cache.directory_of("a", 1), KB, fail, lambda: False)
    assert entries(tmp_path) == set()
    acquire(cache, "a").close()
    assert entries(tmp_path) == {"a"}


def test_download_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.partial" / "1").mkdir(parents=True)
    (tmp_path / "a.partial" / "1" / "variables").write_text("half")
    acquire(ModelCache(tmp_path, 0), "a").close()
    assert entries(tmp_path) == {"a"}
    assert [path.name for path in (tmp_path / "a" / "1").iterdir()] == ["saved_model.pb"]


def test_entry_that_has_lost_its_lock_file_is_replaced(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, 0)
    acquire(cache, "a").close()
    (tmp_path / "a" / "lock").unlink()
    (tmp_path / "a" / "1" / "variables").write_text("old")
    acquire(cache, "a").close()
    assert entries(tmp_path) == {"a"}
    assert [path.name for path in (tmp_path / "a" / "1").iterdir()] == ["saved_model.pb"]


def test_version_that_a_killed_server_was_removing_counts_and_is_downloaded_again(
    tmp_path: Path,
) -> None:
    cache = ModelCache(tmp_path, 3 * KB)
    acquire(cache, "a", 2 * KB).close()
    process = multiprocessing.get_context("spawn").Process(
        target=acquire_and_die_at_the_first_removed_file, args=(tmp_path,)
    )
    process.start()
    process.join(60)
    assert process.exitcode == KILLED
    assert entries(tmp_path) == {"a.partial", "b.partial"}
    acquire(cache, "c", KB).close()
    assert sum(int((tmp_path / name / "lock").read_text()) for name in entries(tmp_path)) <= 3 * KB
    acquire(cache, "a", 2 * KB).close()
    assert entries(tmp_path) == {"a", "c"}
    assert (tmp_path / "a" / "1" / "saved_model.pb").read_bytes() == bytes(2 * KB)


def test_least_recently_used_version_goes(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, 3 * KB)
    for order, name in enumerate(["b", "a", "c"]):
        acquire(cache, name).close()
        os.utime(tmp_path / name / "lock", (order, order))
    acquire(cache, "d", 2 * KB).close()
    assert entries(tmp_path) == {"c", "d"}


def test_version_in_use_stays(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, 3 * KB)
    lease = acquire(cache, "a", 2 * KB)
    with pytest.raises(
        CodedError,
        match="of 2000 bytes .* is 3000, and 2000 bytes are in use",
        check=lambda error: error.code is Code.RESOURCE_EXHAUSTED,
    ):
        acquire(ModelCache(tmp_path, 3 * KB), "b", 2 * KB)
    assert entries(tmp_path) == {"a"}
    lease.close()
    acquire(cache, "b", 2 * KB).close()
    assert entries(tmp_path) == {"b"}


def test_server_waits_for_the_download_of_another_server(tmp_path: Path) -> None:
    is_downloading, may_end = threading.Event(), threading.Event()

    def download(directory: Path) -> None:
        directory.mkdir()
        is_downloading.set()
        assert may_end.wait(60)

    first, second = ModelCache(tmp_path, 0), ModelCache(tmp_path, 0)
    directory = first.directory_of("a", 1)
    has_asked = threading.Event()

    def note_question() -> bool:
        has_asked.set()
        return False

    with ThreadPoolExecutor() as pool:
        downloading = pool.submit(first.acquire, directory, 0, download, lambda: False)
        assert is_downloading.wait(60)
        waiting = pool.submit(second.acquire, directory, 0, refuse_download, note_question)
        assert has_asked.wait(60)
        may_end.set()
        downloading.result(60).close()
        waiting.result(60).close()


def test_wait_for_a_version_that_is_no_longer_needed_ends(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path, 0)
    with pytest.raises(Cancelled):
        cache.acquire(cache.directory_of("a", 1), 0, refuse_download, lambda: True)


def test_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="/file cannot be written: .* --model_cache_dir"):
        acquire(ModelCache(tmp_path / "file", 0), "a")
