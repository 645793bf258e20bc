import io
import logging

import pytest
from rich.console import Console

from trainer.hooks.progress import (
    BatchProgressHook,
    DelayedReporter,
    LogReporter,
    NullReporter,
    ProgressBar,
    Reporter,
    TimedLogReporter,
    make_batch_reporter,
    make_step_reporter,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_anything_else_gets_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_terminal(monkeypatch)
    log_only_to(monkeypatch, logging.StreamHandler(Terminal()), logging.NullHandler())
    assert isinstance(make_step_reporter("train", 10, Terminal()), ProgressBar)
    assert isinstance(make_step_reporter("train", 10, io.StringIO()), LogReporter)
    assert isinstance(make_step_reporter("train", None, Terminal()), NullReporter)


def forget_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def log_only_to(monkeypatch: pytest.MonkeyPatch, *handlers: logging.Handler) -> None:
    logger = logging.getLogger("tensorflow")
    monkeypatch.setattr(logger, "handlers", list(handlers))
    monkeypatch.setattr(logger, "propagate", False)


def test_a_log_file_gets_its_lines_although_a_terminal_has_the_bar(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorflow")
    forget_terminal(monkeypatch)
    screen, file = Terminal(), io.StringIO()
    log_only_to(monkeypatch, logging.StreamHandler(screen), logging.StreamHandler(file))
    reporter = make_step_reporter("train", 10, screen)
    reporter.start(0, 20)
    for step in (10, 20):
        reporter.update(step, 2.0, 0.5)
    reporter.close()
    logging.getLogger("tensorflow").info("another message")
    assert file.getvalue().splitlines() == [
        "loss = 0.5, step = 10 of 20, 5 s left (2 steps/s)",
        "global_step/sec: 2",
        "loss = 0.5, step = 20 of 20 (2 steps/s)",
        "global_step/sec: 2",
        "another message",
    ]
    assert "loss = " not in screen.getvalue()
    assert "another message" in screen.getvalue()


def test_the_bar_shows_steps_loss_speed_and_time_left() -> None:
    screen = io.StringIO()
    bar = ProgressBar("train", Console(file=screen, force_terminal=True, width=120))
    bar.start(0, 100)
    bar.update(40, 20.0, 0.12345)
    bar.close()
    drawn = screen.getvalue()
    for part in ("train", "40/100", "loss 0.1235", "20.0 steps/s", "left"):
        assert part in drawn


def test_a_line_comes_every_n_steps_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    lines = LogReporter(every_n_steps=20)
    lines.start(0, 30)
    for step in (10, 20, 30):
        lines.update(step, 2.0, 0.5)
    assert caplog.messages == [
        "loss = 0.5, step = 20 of 30, 5 s left (2 steps/s)",
        "loss = 0.5, step = 30 of 30 (2 steps/s)",
    ]


def test_the_last_step_is_delayed_of_even_where_it_was_not_foreseen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    lines = LogReporter(every_n_steps=20)
    lines.start(0, 100)
    for step in (20, 30):
        lines.update(step, 2.0, 0.5)
    lines.close()
    lines.close()
    assert [message.split(" of ")[0] for message in caplog.messages] == [
        "loss = 0.5, step = 20",
        "loss = 0.5, step = 30",
    ]


def test_without_a_known_end_no_time_is_promised(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    lines = LogReporter(every_n_steps=1)
    lines.start(0, None)
    lines.update(1, 2.0, 0.5)
    assert caplog.messages == ["loss = 0.5, step = 1 (2 steps/s)"]


def test_an_evaluation_is_heard_of_after_some_seconds_and_then_now_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    now = [0.0]
    lines = TimedLogReporter("evaluate", "batches", every_secs=10, clock=lambda: now[0])
    delayed = DelayedReporter(lines, quiet_secs=5, clock=lambda: now[0])
    hook = BatchProgressHook(delayed, 50, lambda: int(now[0]), clock=lambda: now[0])
    hook.after_create_session(None, None)
    for _ in range(30):
        now[0] += 1.0
        hook.after_run(None, None)
    assert caplog.messages == [
        "evaluate: 15 of 50, 35 s left (1 batches/s)",
        "evaluate: 25 of 50, 25 s left (1 batches/s)",
    ]


def test_an_evaluation_within_a_bar_draws_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    delayed = DelayedReporter(
        ProgressBar("evaluate", Console(file=io.StringIO(), force_terminal=True)), 0
    )
    delayed.start(0, 10)
    assert drawn_by(make_batch_reporter("evaluate", Terminal())) is ProgressBar
    delayed.update(1, 1.0)
    assert drawn_by(make_batch_reporter("evaluate", Terminal())) is TimedLogReporter
    delayed.close()
    assert drawn_by(make_batch_reporter("evaluate", Terminal())) is ProgressBar


def drawn_by(reporter: Reporter) -> type[Reporter]:
    assert isinstance(reporter, DelayedReporter)
    return type(reporter.reporter)


def test_there_is_no_estimate_while_the_step_does_not_move(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    lines = LogReporter(every_n_steps=1)
    lines.start(0, 20)
    lines.update(1, 0.0, 1.0)
    lines.close()
    assert caplog.messages == ["loss = 1, step = 1 of 20 (0 steps/s)"]
