"""The record files can be read even if their writer crashed or could not write."""

import os
from pathlib import Path

import pytest

from server.request_log.files import FileSeries, RecordFiles
from tpuserve.saved_model import warm_up_file

NOON = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def contents(directory: Path) -> dict[str, list[bytes]]:
    return {
        path.name: list(warm_up_file.read_warm_up_records(path))
        for path in sorted(directory.iterdir())
    }


def name(number: int) -> str:
    return f"log-20231114-221320-{os.getpid()}-{number}.tfrecord"


def test_records_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON)
    files.write(FileSeries("m", str(tmp_path / "log")), b"one")
    files.write(FileSeries("m", str(tmp_path / "log")), b"two")
    assert contents(tmp_path) == {name(0): [b"one", b"two"]}
    files.close()


def test_full_file_is_followed_by_another(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON, max_records=2)
    for content in (b"one", b"two", b"three"):
        files.write(FileSeries("m", str(tmp_path / "log")), content)
    files.close()
    assert contents(tmp_path) == {name(0): [b"one", b"two"], name(1): [b"three"]}


@pytest.mark.parametrize(("max_bytes", "counts"), [(40, [2, 1]), (39, [1, 1, 1]), (1, [1, 1, 1])])
def test_record_that_does_not_fit_into_a_file_begins_another(
    tmp_path: Path, max_bytes: int, counts: list[int]
) -> None:
    # TFRecord adds 16 bytes to each record.
    files = RecordFiles(lambda: NOON, max_bytes=max_bytes)
    for _ in range(3):
        files.write(FileSeries("m", str(tmp_path / "log")), b"four")
    files.close()
    assert [len(content) for content in contents(tmp_path).values()] == counts


def test_models_have_files_of_their_own(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON)
    files.write(FileSeries("m", str(tmp_path / "log")), b"one")
    files.write(FileSeries("n", str(tmp_path / "log")), b"two")
    files.close()
    assert list(contents(tmp_path).values()) == [[b"one"], [b"two"]]


def test_files_that_are_wanted_no_more_are_closed(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON)
    prefix = str(tmp_path / "log")
    for model in ("m", "n"):
        files.write(FileSeries(model, prefix), b"one")
    files.close_except({FileSeries("m", prefix)})
    for model in ("m", "n"):
        files.write(FileSeries(model, prefix), b"two")
    files.close()
    assert list(contents(tmp_path).values()) == [[b"one", b"two"], [b"one"], [b"two"]]


def test_file_of_an_earlier_server_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(b"cut by a crash")
    files = RecordFiles(lambda: NOON)
    files.write(FileSeries("m", str(tmp_path / "log")), b"one")
    files.close()
    assert (tmp_path / name(0)).read_bytes() == b"cut by a crash"
    assert list(warm_up_file.read_warm_up_records(tmp_path / name(1))) == [b"one"]


def test_oldest_files_make_room_for_the_newest(tmp_path: Path) -> None:
    # Each record has 16 + 9 bytes, a file one of them, and all files 100 bytes.
    series = FileSeries("m", str(tmp_path / "log"), max_total_bytes=100)
    files = RecordFiles(lambda: NOON, max_records=1)
    (tmp_path / "log-other").write_bytes(bytes(1000))
    for number in range(9):
        files.write(series, f"record {number} "[:9].encode())
        path = tmp_path / name(number)
        os.utime(path, (number, number))
    files.close()
    (tmp_path / "log-other").unlink()
    assert [*contents(tmp_path).values()] == [
        [f"record {number} "[:9].encode()] for number in (5, 6, 7, 8)
    ]


def test_file_that_was_deleted_is_followed_by_another(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON)
    series = FileSeries("m", str(tmp_path / "log"))
    files.write(series, b"one")
    (tmp_path / name(0)).unlink()
    files.write(series, b"two")
    files.close()
    assert [*contents(tmp_path).values()] == [[b"two"]]


def test_lines_of_json_are_written_as_they_are(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON)
    files.write(FileSeries("m", str(tmp_path / "log"), "jsonl"), b'{"row": 0}\n{"row": 1}\n')
    files.close()
    (path,) = tmp_path.iterdir()
    assert path.suffix == ".jsonl"
    assert path.read_text() == '{"row": 0}\n{"row": 1}\n'


def test_file_that_waits_for_its_upload_is_complete_after_a_minute(tmp_path: Path) -> None:
    now = [NOON]
    complete: list[Path] = []
    files = RecordFiles(lambda: now[0], on_spooled=complete.append)
    spooled = FileSeries("m", str(tmp_path / "spooled"), is_spooled=True)
    files.write(spooled, b"one")
    files.write(FileSeries("m", str(tmp_path / "log")), b"two")
    assert (files.close_old(), complete) == (60, [])
    now[0] += 60
    assert files.close_old() is None
    assert [path.name.partition("-")[0] for path in complete] == ["spooled"]
    files.close()
    assert len(complete) == 1


def test_missing_directory_is_made(tmp_path: Path) -> None:
    files = RecordFiles(lambda: NOON)
    files.write(FileSeries("m", str(tmp_path / "a" / "b" / "log")), b"one")
    files.close()
    assert len(list((tmp_path / "a" / "b").iterdir())) == 1


def test_record_that_does_not_fit_on_the_disk_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RecordFiles(lambda: NOON)
    prefix = str(tmp_path / "log")
    files.write(FileSeries("m", prefix), b"one")
    file = files._open[FileSeries("m", prefix)]._file

    class Full:
        def write(self, data: bytes) -> int:
            return file.write(data[:5])

        truncate, seek, close, fileno = file.truncate, file.seek, file.close, file.fileno

    monkeypatch.setattr(files._open[FileSeries("m", prefix)], "_file", Full())
    with pytest.raises(OSError, match="No space left on device"):
        files.write(FileSeries("m", prefix), b"two")
    monkeypatch.undo()
    files.write(FileSeries("m", prefix), b"three")
    files.close()
    assert list(contents(tmp_path).values()) == [[b"one", b"three"]]
