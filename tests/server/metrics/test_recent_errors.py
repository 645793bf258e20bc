"""The latest errors are kept for the console, bounded, and are no metric."""

from server.metrics import Metrics


def entries(metrics: Metrics) -> list[tuple[str, str, str, str, int]]:
    return [
        (error.model, error.entrypoint, error.status, error.message, error.count)
        for error in metrics.recent_errors()
    ]


def test_equal_errors_share_an_entry() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.request_failed("half", "REST", "INVALID_ARGUMENT", "bad number")
    metrics.request_failed("half", "GRPC", "INVALID_ARGUMENT", "bad number")
    metrics.request_failed("half", "GRPC", "CANCELLED", "its client has left")
    assert entries(metrics) == [
        ("half", "GRPC", "INVALID_ARGUMENT", "bad number", 1),
        ("half", "REST", "INVALID_ARGUMENT", "bad number", 3),
    ]
    assert b"bad number" not in metrics.exposition()


def test_only_the_latest_errors_are_kept_and_long_texts_are_cut() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.request_failed("half", "REST", "NOT_FOUND", str(number))
    errors = entries(metrics)
    assert (len(errors), errors[0][3], errors[-1][3]) == (30, "99", "70")
    metrics.request_failed("m" * 1000, "REST", "NOT_FOUND", "x" * 1000)
    *texts, count = entries(metrics)[0]
    assert ([len(str(text)) for text in texts], count) == ([500, 4, 9, 500], 1)
