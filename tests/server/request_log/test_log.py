"""The request log writes the configured samples, and delays no request."""

import itertools
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.config.model_config import RequestLogging
from server.dataplane import Prediction
from server.metrics import Metrics
from server.request_log import RequestLog, log
from tests.threads import no_new_threads
from tpuserve.errors import InvalidConfig
from tpuserve.saved_model import warm_up_file

X = {"x": np.ones(2, np.float32)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory in a real file system of 64 KB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"]
    if subprocess.run(["mount", *options, directory], check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


def answer(version: int = 3, model: str = "m") -> Prediction:
    return Prediction(model, version, "serving_default", {"y": np.ones(2, np.float32)})


def encode(what: Any, config: RequestLogging, when: float) -> bytes:
    return f"{what.answer.version} at {when:g}".encode()


class Setting:
    """A log of the model "m" whose records are the version and the time of each request."""

    def __init__(self, directory: Path, rate: float = 1, **how: Any) -> None:
        self.directory = directory
        self.metrics = Metrics()
        self.log = RequestLog(self.metrics, **{"encode": encode, "clock": lambda: 7, **how})
        self.log.configure({"m": RequestLogging("", str(directory / "log"), rate)})

    def records(self) -> list[bytes]:
        self.log.close(10)
        return [
            record
            for path in self.directory.iterdir()
            for record in warm_up_file.read_warm_up_records(path)
        ]

    def count(self, status: str) -> int:
        start = f':tensorflow:serving:request_log_count{{model_name="m",status_code="{status}"}} '
        lines = self.metrics.exposition().decode().splitlines()
        return sum(int(line.removeprefix(start)) for line in lines if line.startswith(start))


def test_what_is_given_is_written_and_counted(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    for version in (1, 2):
        setting.log.predict(answer(version), X, [])
    assert setting.records() == [b"1 at 7", b"2 at 7"]
    assert setting.count("OK") == 2


@pytest.mark.parametrize(
    ("rate", "expected"), [(0, []), (0.25, [0.0, 0.1]), (1, [0.0, 0.1, 0.25, 0.999])]
)
def test_share_of_the_requests_is_wanted(
    tmp_path: Path, rate: float, expected: list[float]
) -> None:
    drawn = [0.0, 0.1, 0.25, 0.999]
    setting = Setting(tmp_path, rate, sample=iter(drawn).__next__)
    assert [number for number in drawn if setting.log.should_log("m")] == expected
    assert not setting.log.should_log("n")
    setting.log.close()


def test_other_configuration_ends_the_log_of_a_model(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.log.configure({})
    assert not setting.log.should_log("m")
    setting.log.predict(answer(), X, [])
    assert setting.records() == []


def test_what_comes_too_fast_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_QUEUED", 2)
    entered, gate = threading.Event(), threading.Event()

    def slow(what: Any, config: RequestLogging, when: float) -> bytes:
        entered.set()
        assert gate.wait(10)
        return encode(what, config, when)

    setting = Setting(tmp_path, encode=slow)
    setting.log.predict(answer(1), X, [])
    assert entered.wait(10)
    for version in (2, 3, 4, 5):
        setting.log.predict(answer(version), X, [])
    gate.set()
    assert setting.records() == [b"1 at 7", b"2 at 7", b"3 at 7"]
    assert (setting.count("OK"), setting.count("RESOURCE_EXHAUSTED")) == (3, 2)


def test_what_waits_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two input floats and two output floats have 16 bytes; strings count with their contents.
    monkeypatch.setattr(log, "MAX_QUEUED_BYTES", 16)
    setting = Setting(tmp_path)
    setting.log.predict(answer(1), {"x": np.array([b"17 bytes in this!"], object)}, [])
    setting.log.predict(answer(2), X, [])
    assert setting.records() == [b"2 at 7"]


def test_failure_is_counted_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(what: Any, config: RequestLogging, when: float) -> bytes:
        if what.answer.version < 3:
            raise ValueError("no such type")
        return encode(what, config, when)

    setting = Setting(tmp_path, encode=fail)
    for version in (1, 2, 3):
        setting.log.predict(answer(version), X, [])
    assert setting.records() == [b"3 at 7"]
    assert (setting.count("OK"), setting.count("UNKNOWN")) == (1, 2)
    assert caplog.messages == ["request log of m: cannot encode a request: no such type"]


def test_full_disk_stops_the_log_until_there_is_room(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    now = [100.0]
    setting = Setting(small_disk, encode=lambda *_: bytes(1000), clock=lambda: now[0])

    def write(count: int) -> None:
        """Log requests, one per second of the fake clock; wait until each is written or lost."""
        for _ in range(count):
            num_finished = setting.count("OK") + setting.count("UNKNOWN")
            setting.log.predict(answer(), X, [])
            while setting.count("OK") + setting.count("UNKNOWN") == num_finished:
                time.sleep(0.001)
            now[0] += 1

    write(3)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(1 << 20))
    write(20)
    lost = setting.count("UNKNOWN")
    assert lost > 10
    assert len(list(small_disk.glob("log-*"))) == 1
    (small_disk / "filler").unlink()
    write(5)
    written = setting.count("OK")
    assert setting.count("UNKNOWN") == lost
    setting.log.close(10)
    (file,) = small_disk.glob("log-*")
    assert len(list(warm_up_file.read_warm_up_records(file))) == written
    assert caplog.messages == [
        f"request log of m: stopped, cannot write to {small_disk}/log: No space left on device. It "
        f"goes on once the files can be written, for example when the disk has room.",
        f"request log of m: goes on; {lost} requests were not logged",
    ]


def test_disk_that_is_full_from_the_start_gets_no_empty_files(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(1 << 20))
    now = itertools.count(100)
    setting = Setting(small_disk, encode=lambda *_: bytes(1000), clock=lambda: next(now))
    for _ in range(10):
        setting.log.predict(answer(), X, [])
    setting.log.close(10)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    assert setting.count("UNKNOWN") == 10


def test_closed_log_takes_nothing(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.log.close(10)
    setting.log.predict(answer(), X, [])
    assert setting.records() == []
    assert setting.count("RESOURCE_EXHAUSTED") == 1


def test_there_is_a_thread_only_from_the_first_model_to_log_to_the_close(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def new_threads() -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - before]

    request_log = RequestLog(encode=encode)
    request_log.configure({})
    request_log.predict(answer(), X, [])
    assert new_threads() == []
    request_log.configure({"m": RequestLogging("", str(tmp_path / "log"), 1)})
    assert new_threads() == ["request-log"]
    request_log.close(10)
    assert new_threads() == []


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (RequestLogging("", "/logs/a", 1.5), "sampling_rate is 1.5"),
        (RequestLogging("", "/logs/a", float("nan")), "sampling_rate is nan"),
        (RequestLogging("kafka", "/logs/a", 1), "type 'kafka'"),
        (RequestLogging("", "logs/a", 1), "filename_prefix is 'logs/a'"),
        (RequestLogging("", "", 1), "filename_prefix is ''"),
        (RequestLogging("", "/logs/", 1), "filename_prefix is '/logs/'"),
        (RequestLogging("", "s3://bucket", 1), "filename_prefix is 's3://bucket'"),
        (RequestLogging("", "s3://bucket/logs/", 1), "filename_prefix is 's3://bucket/logs/'"),
        (RequestLogging("", "s3://bucket/../a", 1), "filename_prefix is 's3://bucket/../a'"),
        (RequestLogging("", "/logs/a", 1, "csv"), "format 'csv'. Give tfrecord or jsonl"),
        (RequestLogging("", "/logs/a", 1, "jsonl", -1), "max_total_bytes is -1"),
    ],
)
def test_what_no_log_can_be_written_by_is_refused(config: RequestLogging, text: str) -> None:
    with pytest.raises(InvalidConfig, match="^logging_config of model m: ") as caught:
        RequestLog().configure({"m": config})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("https://host/logs/a", "is of a web server, which takes no files"),
        ("nosuch://logs/a", "has a scheme that fsspec does not know"),
    ],
)
def test_url_that_cannot_be_written_is_refused(prefix: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^request log of model m: {prefix} {text}"):
        RequestLog().configure({"m": RequestLogging("", prefix, 1)})


def test_a_configuration_without_a_new_thread_fails_and_the_next_one_works(tmp_path: Path) -> None:
    request_log = RequestLog(encode=encode, clock=lambda: 7)
    config = {"m": RequestLogging("", str(tmp_path / "log"), 1)}
    with no_new_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        request_log.configure(config)
    request_log.configure(config)
    request_log.predict(answer(), X, [])
    request_log.close(10)
    (path,) = tmp_path.iterdir()
    assert list(warm_up_file.read_warm_up_records(path)) == [b"3 at 7"]
