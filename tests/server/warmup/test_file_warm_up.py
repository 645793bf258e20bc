"""A model runs its warm-up requests before clients' requests; if one fails, the load fails."""

import threading
from pathlib import Path

import pytest

from server.admission.cancellation import Cancellation
from server.metrics import Metrics
from server.servables.servable import Model
from server.warmup import FileWarmUp
from tests.server.fakes import FakeModel
from tests.tpuserve.saved_models import tf_records
from tpuserve.errors import Code, CodedError, InvalidInput, InvalidTensor
from tpuserve.saved_model import warm_up_file


class Runs:
    """Records the warm-up records that were run; the records b"bad" and b"worse" fail."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def __call__(self, model: Model, record: bytes, cancellation: Cancellation) -> None:
        self.records.append(record)
        if record == b"bad":
            raise InvalidTensor("Expects arg[0] to be float but string is provided")
        if record == b"worse":
            raise RuntimeError("a fault that nobody has foreseen")


@pytest.fixture
def runs() -> Runs:
    return Runs()


def write_warm_up_file(directory: Path, content: bytes) -> Path:
    path = directory / warm_up_file.PATH
    path.parent.mkdir()
    path.write_bytes(content)
    return directory


def warm_up(
    directory: Path, runs: Runs, iterations: int = 1, metrics: Metrics | None = None
) -> None:
    FileWarmUp(iterations, metrics, run_record=runs)(FakeModel(), directory)


def test_every_record_is_run_in_order(tmp_path: Path, runs: Runs) -> None:
    warm_up(write_warm_up_file(tmp_path, tf_records(b"one", b"two")), runs)
    assert runs.records == [b"one", b"two"]


@pytest.mark.parametrize(("iterations", "times"), [(0, 1), (3, 3)])
def test_record_is_run_as_often_as_asked(
    tmp_path: Path, runs: Runs, iterations: int, times: int
) -> None:
    warm_up(write_warm_up_file(tmp_path, tf_records(b"one", b"two")), runs, iterations)
    assert runs.records == [b"one"] * times + [b"two"] * times


def test_records_are_run_at_once_where_there_are_threads(tmp_path: Path) -> None:
    # Each of the three runs waits until all three have begun.
    together = threading.Barrier(3)

    def run(model: Model, record: bytes, cancellation: Cancellation) -> None:
        together.wait(10)

    write_warm_up_file(tmp_path, tf_records(b"one", b"two", b"three"))
    FileWarmUp(threads=3, run_record=run)(FakeModel(), tmp_path)
    assert not together.broken


def test_record_that_fails_in_a_thread_fails_the_warm_up(tmp_path: Path, runs: Runs) -> None:
    write_warm_up_file(tmp_path, tf_records(b"one", b"bad", *[b"two"] * 90))
    with pytest.raises(InvalidTensor, match="record 1 of "):
        FileWarmUp(threads=4, run_record=runs)(FakeModel(), tmp_path)


def test_request_that_never_ends_is_stopped_and_fails_the_warm_up(tmp_path: Path) -> None:
    def run(model: Model, record: bytes, cancellation: Cancellation) -> None:
        stopped = threading.Event()
        cancellation.add_callback(stopped.set)
        assert stopped.wait(30)
        cancellation.raise_if_cancelled()

    write_warm_up_file(tmp_path, tf_records(b"one", b"two"))
    with pytest.raises(
        CodedError,
        match=r"have not ended in 0\.1 s\. Remove requests",
        check=lambda error: error.code is Code.DEADLINE_EXCEEDED,
    ):
        FileWarmUp(run_record=run, timeout_seconds=0.1)(FakeModel(), tmp_path)


def test_model_without_a_file_is_left_alone(tmp_path: Path, runs: Runs) -> None:
    metrics = Metrics()
    warm_up(tmp_path, runs, metrics=metrics)
    assert runs.records == []
    assert b"model_path" not in metrics.exposition()


def test_a_thousand_records_are_run_and_one_more_fails(tmp_path: Path, runs: Runs) -> None:
    path = write_warm_up_file(tmp_path, tf_records(*[b"one"] * 1000)) / warm_up_file.PATH
    warm_up(tmp_path, runs)
    path.write_bytes(path.read_bytes() + tf_records(b"one"))
    with pytest.raises(InvalidInput) as caught:
        warm_up(tmp_path, runs)
    assert str(caught.value) == f"Number of warmup records exceeds the maximum (1000) at {path}"


@pytest.mark.parametrize("content", [b"no records at all", tf_records(b"one")[:-1]])
def test_file_that_holds_no_records_is_data_loss(
    tmp_path: Path, runs: Runs, content: bytes
) -> None:
    with pytest.raises(CodedError, check=lambda error: error.code is Code.DATA_LOSS) as caught:
        warm_up(write_warm_up_file(tmp_path, content), runs)
    assert caught.value.code is Code.DATA_LOSS
    assert str(caught.value).endswith("Please verify your warmup data is in TFRecord format.")


def test_record_that_fails_fails_the_warm_up_and_is_named(tmp_path: Path, runs: Runs) -> None:
    with pytest.raises(InvalidTensor) as caught:
        warm_up(write_warm_up_file(tmp_path, tf_records(b"one", b"bad", b"two")), runs)
    assert runs.records == [b"one", b"bad"]
    path = tmp_path / warm_up_file.PATH
    reason = "Expects arg[0] to be float but string is provided"
    assert str(caught.value) == f"record 1 of {path}: {reason}"


def test_unforeseen_failure_is_a_failed_load(tmp_path: Path, runs: Runs) -> None:
    metrics = Metrics()
    with pytest.raises(
        CodedError, match="record 0 of .*: a fault", check=lambda error: error.code is Code.INTERNAL
    ):
        warm_up(write_warm_up_file(tmp_path, tf_records(b"worse")), runs, metrics=metrics)
    records = ":tensorflow:serving:model_warmup_records_read"
    lines = metrics.exposition().decode().splitlines()
    assert f'{records}{{model_path="{tmp_path}",status="INTERNAL"}} 1' in lines


def test_warm_up_is_counted(tmp_path: Path, runs: Runs) -> None:
    metrics = Metrics()
    with pytest.raises(InvalidTensor):
        warm_up(
            write_warm_up_file(tmp_path, tf_records(b"one", b"two", b"bad")), runs, metrics=metrics
        )
    lines = metrics.exposition().decode().splitlines()
    records = ":tensorflow:serving:model_warmup_records_read"
    assert f'{records}{{model_path="{tmp_path}",status="OK"}} 2' in lines
    assert f'{records}{{model_path="{tmp_path}",status="INVALID_ARGUMENT"}} 1' in lines
    latency = ":tensorflow:serving:model_warmup_latency_count"
    assert f'{latency}{{model_path="{tmp_path}",status="INVALID_ARGUMENT"}} 1' in lines
