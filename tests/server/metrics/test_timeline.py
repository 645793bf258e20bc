"""A timeline divides a request into stages without a gap."""

import pytest

from server.metrics.timeline import Timeline


def names_and_lengths(timeline: Timeline) -> list[tuple[str, int]]:
    return [(stage.name, stage.end_ns - stage.start_ns) for stage in timeline.stages()]


@pytest.fixture
def timeline() -> Timeline:
    """Return the timeline of a request that ran alone."""
    timeline = Timeline(100)
    timeline.queued_ns, timeline.decoding_ns = 110, 115
    timeline.decoded_ns = timeline.running_ns = 145
    timeline.ran_ns, timeline.ended_ns = 245, 250
    return timeline


def test_stages_follow_each_other(timeline: Timeline) -> None:
    stages = list(timeline.stages())
    assert [stage.name for stage in stages] == ["queue", "decode", "run", "encode"]
    assert [stage.start_ns for stage in stages[1:]] == [stage.end_ns for stage in stages[:-1]]
    assert (stages[0].start_ns, stages[-1].end_ns) == (110, 250)


def test_wait_for_a_batch_counts_as_queue(timeline: Timeline) -> None:
    timeline.begin_run(205, 8)
    assert names_and_lengths(timeline) == [
        ("queue", 5),
        ("decode", 30),
        ("queue", 60),
        ("run", 40),
        ("encode", 5),
    ]
    assert timeline.queue_seconds == pytest.approx(65e-9)
    assert timeline.run_seconds == pytest.approx(40e-9)
    assert timeline.total_seconds == pytest.approx(150e-9)
    assert (timeline.decode_ns, timeline.encode_ns) == (30, 5)


def test_first_of_several_batches_begins_the_run(timeline: Timeline) -> None:
    timeline.begin_run(205, 8)
    timeline.begin_run(220, 4)
    assert (timeline.running_ns, timeline.run_rows) == (205, 8)


def test_last_stage_of_a_failed_request_ends_with_the_request() -> None:
    timeline = Timeline(100)
    timeline.decoding_ns, timeline.ended_ns = 110, 130
    assert names_and_lengths(timeline) == [("queue", 10), ("decode", 20)]
    timeline.decoded_ns = timeline.running_ns = 120
    assert names_and_lengths(timeline) == [("queue", 10), ("decode", 10), ("run", 10)]


def test_end_is_told_once(timeline: Timeline) -> None:
    ended: list[Timeline] = []
    timeline.on_end = ended.append
    timeline.end()
    timeline.end()
    assert ended == [timeline]
