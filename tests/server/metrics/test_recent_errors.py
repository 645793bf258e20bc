"""The latest errors are kept for the console, bounded, and are no metric."""

from server.metrics import Metrics, family
from server.metrics.own_collectors import RECENT_ERRORS


def entries(snapshot: family.Snapshot) -> list[tuple[tuple[str, ...], object]]:
    (errors,) = (family for family in snapshot if family.name == RECENT_ERRORS)
    return [(labels[1:], count) for labels, count in errors.values.items()]


def test_equal_errors_share_an_entry() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.request_failed("half", "REST", "INVALID_ARGUMENT", "bad number")
    metrics.request_failed("half", "GRPC", "INVALID_ARGUMENT", "bad number")
    metrics.request_failed("half", "GRPC", "CANCELLED", "its client has left")
    assert entries(metrics.snapshot()) == [
        (("half", "REST", "INVALID_ARGUMENT", "bad number"), 3),
        (("half", "GRPC", "INVALID_ARGUMENT", "bad number"), 1),
    ]


def test_only_the_latest_errors_are_kept_and_long_texts_are_cut() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.request_failed("half", "REST", "NOT_FOUND", str(number))
    errors = entries(metrics.snapshot())
    assert (len(errors), errors[0][0][3], errors[-1][0][3]) == (30, "70", "99")
    metrics.request_failed("m" * 1000, "REST", "NOT_FOUND", "x" * 1000)
    (_, model_and_message) = entries(metrics.snapshot())[-2:]
    assert [len(text) for text in model_and_message[0]] == [500, 4, 9, 500]


def test_errors_of_processes_are_added_up_and_not_exported() -> None:
    processes = [Metrics(), Metrics()]
    for metrics in processes:
        metrics.request_failed("half", "REST", "NOT_FOUND", "no such model")
    total = family.add_up([metrics.snapshot() for metrics in processes])
    assert sum(int(str(count)) for _, count in entries(total)) == 2
    assert b"no such model" not in family.format_snapshot(total)
