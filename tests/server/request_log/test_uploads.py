"""Request logs reach URLs as whole files, whatever fails meanwhile; no request waits for them."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from server.config.model_config import RequestLogging
from server.dataplane import Prediction
from server.metrics import Metrics
from server.request_log import RequestLog, uploader
from server.request_log.spool import Spool
from server.storage import file_systems
from tests.server.storage import stores
from tests.server.storage.stores import Store
from tpuserve.saved_model import tfrecord

X = {"x": np.ones(2, np.float32)}
SECONDS = 60


def encode(what: Any, config: RequestLogging, when: float) -> bytes:
    return bytes(what.answer.version)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of our own loggers: the object stores log too."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("server.")]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the time limit only ends a test that hangs."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.005)


class Setting:
    """A log of the model "m", whose records have as many bytes as the version's number."""

    def __init__(self, spool: Path, prefix: str, max_total_bytes: int = 0) -> None:
        self.spool = spool
        self.metrics = Metrics()
        self.log = RequestLog(self.metrics, encode=encode, spool_directory=spool)
        config = RequestLogging("", prefix, 1, max_total_bytes=max_total_bytes)
        self.log.configure({"m": config})

    def write(self, *versions: int) -> None:
        for version in versions:
            outputs = {"y": np.ones(2, np.float32)}
            self.log.predict(Prediction("m", version, "serving_default", outputs), X, [])

    def close(self) -> None:
        self.log.close(SECONDS)

    def left(self) -> list[Path]:
        return [path for path in self.spool.rglob("*") if path.is_file()]

    def count(self, metric: str) -> int:
        lines = self.metrics.exposition().decode().splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))

    def uploads(self, code: str) -> int:
        return self.count(f'tpuserve_request_log_uploads_total{{code="{code}",model_name="m"}}')

    def logged(self, code: str) -> int:
        labels = f'{{model_name="m",status_code="{code}"}}'
        return self.count(f":tensorflow:serving:request_log_count{labels}")


@pytest.fixture
def memory() -> Iterator[Any]:
    file_system = fsspec.filesystem("memory")
    yield file_system
    file_system.store.clear()


def sizes(path: Path) -> list[int]:
    return [len(record) for record in tfrecord.read_records(path)]


def test_what_is_logged_is_one_file_at_the_url_after_the_end(tmp_path: Path, memory: Any) -> None:
    setting = Setting(tmp_path, "memory://logs/a/requests")
    setting.write(1, 2)
    setting.close()
    ((name, file),) = memory.store.items()
    assert name.startswith("/logs/a/requests-")
    (tmp_path / "copy").write_bytes(file.getvalue())
    assert sizes(tmp_path / "copy") == [1, 2]
    assert (setting.uploads("OK"), setting.logged("OK")) == (1, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_full_file_is_uploaded_while_the_log_goes_on(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    setting = Setting(tmp_path / "spool", f"file://{logs}/requests", max_total_bytes=100)
    setting.write(1, 2)
    wait_until(lambda: logs.exists() and len(list(logs.glob("requests-*.tfrecord"))) == 1)
    setting.close()
    assert sorted(map(sizes, logs.iterdir())) == [[1], [2]]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_missing_bucket_stops_no_request_and_its_files_are_uploaded_later(
    tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "server")
    spool, absent = tmp_path / "spool", f"{scheme}://absent/logs/requests"
    with stores.start(scheme, tmp_path) as store:
        setting = Setting(spool, absent, max_total_bytes=100)
        setting.write(1, 2, 3)
        wait_until(lambda: setting.uploads("UNAVAILABLE") >= 1 and len(setting.left()) == 3)
        setting.close()
        assert setting.logged("OK") == 3
        failed, waiting = messages(caplog)
        assert failed.startswith(f"request log of m: {absent}-")
        assert " cannot be written: " in failed
        assert failed.endswith(f"Its files wait in {spool}.")
        assert waiting == (
            f"request log: 3 files are not uploaded. The next server with "
            f"--request_log_spool_dir={spool} uploads them."
        )
        caplog.clear()
        create_bucket(store, "absent")
        following = Setting(spool, store.uri("logs/requests"))
        wait_until(lambda: following.uploads("OK") == 3)
        following.write(4)
        following.close()
        assert messages(caplog) == ["request log: uploading 3 files of an earlier server"]
        assert [*spool.iterdir()] == []
        assert read(store, "absent/logs", tmp_path / "copy") == [[1], [2], [3]]
        assert read(store, f"{stores.NAME}/logs", tmp_path / "copy") == [[4]]


def create_bucket(store: Store, name: str) -> None:
    if store.scheme == "gs":
        file_systems.open_file_system(store.uri("")).mkdir(name)
        return
    import boto3

    endpoint = f"http://{os.environ['S3_ENDPOINT']}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket=name)
    client.close()


def read(store: Store, directory: str, copy: Path) -> list[list[int]]:
    """Return the sizes of the records of each file in a directory of the store."""
    file_system = file_systems.open_file_system(f"{store.scheme}://{directory}/")
    found = []
    for path in file_system.find(directory):
        copy.write_bytes(file_system.cat_file(path))
        found.append(sizes(copy))
    return sorted(found)


def test_destination_that_fails_is_told_once_and_again_when_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "_FIRST_PAUSE_SECONDS", 0.01)
    caplog.set_level("INFO", "server")
    (tmp_path / "logs").write_text("a file in the place of the directory")
    prefix = f"file://{tmp_path}/logs/requests"
    setting = Setting(tmp_path / "spool", prefix, max_total_bytes=100)
    setting.write(1, 2, 3)
    wait_until(lambda: setting.uploads("UNAVAILABLE") >= 3)
    (tmp_path / "logs").unlink()
    wait_until(lambda: setting.uploads("OK") >= 2)
    setting.close()
    assert sorted(map(sizes, (tmp_path / "logs").iterdir())) == [[1], [2], [3]]
    failed, recovered = messages(caplog)
    assert failed.startswith(f"request log of m: {prefix}-")
    assert recovered == "request log of m: its files are uploaded again"


def test_file_that_was_deleted_from_the_spool_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    setting = Setting(tmp_path / "spool", f"file://{tmp_path}/logs/a", max_total_bytes=100)
    setting.write(1, 2, 3)
    wait_until(lambda: setting.uploads("UNAVAILABLE") >= 1 and len(setting.left()) == 3)
    min(setting.left()).unlink()
    (tmp_path / "logs").unlink()
    setting.close()
    assert sorted(map(sizes, (tmp_path / "logs").iterdir())) == [[2], [3]]


def test_destination_that_fails_delays_no_other(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = RequestLog(encode=encode, spool_directory=tmp_path / "spool")
    places = {"m": tmp_path / "file" / "a", "n": tmp_path / "logs" / "a"}
    configs = {
        name: RequestLogging("", f"file://{path}", 1, max_total_bytes=100)
        for name, path in places.items()
    }
    log.configure(configs)
    for name in ("m", "m", "n", "n"):
        log.predict(Prediction(name, 5, "serving_default", {}), X, [])
    wait_until(lambda: len(list((tmp_path / "logs").glob("a-*.tfrecord"))) == 1)
    log.close(SECONDS)
    assert len(list((tmp_path / "logs").iterdir())) == 2


def test_spool_that_is_full_takes_nothing_until_files_are_uploaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").touch()
    # A record has 16 bytes more than its content: a fourth one does not fit.
    setting = Setting(tmp_path / "spool", f"file://{tmp_path}/logs/a", max_total_bytes=100)
    setting.write(10, 10, 10, 10)
    setting.close()
    assert (setting.logged("OK"), setting.logged("UNKNOWN")) == (3, 1)
    assert len(setting.left()) == 3
    assert "3 files wait for their upload, and max_total_bytes is 100" in "".join(messages(caplog))


def test_directory_of_a_log_may_be_read_by_others(tmp_path: Path) -> None:
    log = RequestLog(encode=encode)
    log.configure({"m": RequestLogging("", str(tmp_path / "logs" / "a"), 1)})
    log.predict(Prediction("m", 1, "serving_default", {}), X, [])
    log.close(SECONDS)
    (tmp_path / "other").mkdir()
    assert (tmp_path / "logs").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_spool_that_cannot_be_written_stops_only_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    setting = Setting(tmp_path / "file" / "spool", "memory://logs/requests")
    setting.write(1, 2)
    setting.close()
    assert setting.logged("UNKNOWN") == 2
    (message,) = messages(caplog)
    assert message.startswith("request log of m: stopped, cannot write to ")
    assert "Not a directory" in message


def test_files_of_a_process_that_runs_are_left_alone(tmp_path: Path) -> None:
    first, second, third = (Spool(tmp_path) for _ in range(3))
    (tmp_path / "of the user").mkdir()
    (tmp_path / "of the user" / "file").touch()
    for spool in (first, second):
        spool.open()
    file = Path(first.prefix("m", "s3://bucket/a") + "-1.tfrecord")
    file.parent.mkdir(parents=True)
    file.touch()
    assert second.take_left_files() == []
    first.close()
    third.open()
    (taken,) = third.take_left_files()
    assert third.destination(taken) == ("m", "s3://bucket/a-1.tfrecord")
    assert (tmp_path / "of the user" / "file").exists()
    for spool in (second, third):
        spool.close()


@pytest.mark.parametrize(
    "url", ["s3://b/a", "file:///a/b", "memory://a//b", "sftp://me@host:22/a%20b/é c", "gs://b/a:1"]
)
@pytest.mark.parametrize("model", ["m", "a/b", "%", "ü 1"])
def test_path_in_the_spool_names_model_and_url(tmp_path: Path, url: str, model: str) -> None:
    spool = Spool(tmp_path)
    assert spool.destination(Path(spool.prefix(model, url))) == (model, url)
