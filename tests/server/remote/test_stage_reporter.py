"""The times of requests are added up, and reach the engine process without another request."""

import threading
from collections.abc import Sequence

from server.dataplane.inference_statistics import StageTimes
from server.metrics.timeline import Timeline
from server.remote.stage_reporter import StageReporter
from tests.threads import no_new_threads
from tpuserve.errors import Unavailable


def make_timeline(rows: int, decode_ns: int, encode_ns: int) -> Timeline:
    timeline = Timeline(100)
    timeline.record_version("half", 3, "serving_default", "serve")
    timeline.run_rows = rows
    timeline.decoded_ns = timeline.decoding_ns + decode_ns
    timeline.ran_ns = 1000
    timeline.ended_ns = timeline.ran_ns + encode_ns
    return timeline


def test_times_are_added_up_and_reported_once() -> None:
    reports: list[Sequence[StageTimes]] = []
    reporter = StageReporter(reports.append)
    for rows, decode_ns, encode_ns in ((2, 5, 7), (2, 1, 2), (4, 10, 20)):
        reporter.add(make_timeline(rows, decode_ns, encode_ns))
    reporter.flush()
    reporter.flush()
    assert reports == [[StageTimes("half", 3, 2, 6, 9), StageTimes("half", 3, 4, 10, 20)]]


def test_times_are_reported_by_themselves_again_and_again() -> None:
    reported = threading.Event()
    reporter = StageReporter(lambda stages: reported.set())
    for _ in range(2):
        reporter.add(make_timeline(2, 5, 7))
        assert reported.wait(60)
        reported.clear()


def test_times_are_reported_with_the_next_request_after_no_thread_could_be_started() -> None:
    reports: list[Sequence[StageTimes]] = []
    has_reported = threading.Event()

    def report(stages: Sequence[StageTimes]) -> None:
        reports.append(stages)
        has_reported.set()

    reporter = StageReporter(report)
    with no_new_threads():
        reporter.add(make_timeline(2, 5, 7))
    reporter.add(make_timeline(2, 1, 2))
    assert has_reported.wait(60)
    assert reports == [[StageTimes("half", 3, 2, 6, 9)]]


def test_engine_process_that_has_ended_is_no_error() -> None:
    def fail(stages: Sequence[StageTimes]) -> None:
        raise Unavailable("the process has ended")

    reporter = StageReporter(fail)
    reporter.add(make_timeline(2, 5, 7))
    reporter.flush()
