import io
import logging

import pytest
from rich.console import Console

from trainer.progress import Bar, Lines, Silence, reporter

pytestmark = pytest.mark.slow


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_anything_else_gets_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(reporter(100, 10, Terminal()), Bar)
    assert isinstance(reporter(100, 10, io.StringIO()), Lines)
    assert isinstance(reporter(100, None, Terminal()), Silence)


def test_the_bar_shows_steps_loss_speed_and_time_left() -> None:
    screen = io.StringIO()
    bar = Bar(100, Console(file=screen, force_terminal=True, width=120))
    bar.start(0)
    bar.update(40, 0.12345, 20.0)
    bar.close()
    drawn = screen.getvalue()
    for part in ("40/100", "loss 0.1235", "20.0 steps/s", "left"):
        assert part in drawn


def test_a_line_comes_every_n_steps_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    lines = Lines(last_step=30, every_n_steps=20)
    lines.start(0)
    for step in (10, 20, 30):
        lines.update(step, 0.5, 2.0)
    assert caplog.messages == [
        "loss = 0.5, step = 20 of 30, 5 s left (2 steps/s)",
        "loss = 0.5, step = 30 of 30, 0 s left (2 steps/s)",
    ]


def test_without_a_known_end_no_time_is_promised(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tensorflow.trainer")
    lines = Lines(last_step=None, every_n_steps=1)
    lines.start(0)
    lines.update(1, 0.5, 2.0)
    assert caplog.messages == ["loss = 0.5, step = 1 (2 steps/s)"]
