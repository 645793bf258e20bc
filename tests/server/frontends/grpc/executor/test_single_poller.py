"""One thread polls alone while calls are quick, and the others poll again when calls are slow."""

import threading

from server.frontends.grpc.executor.single_poller import SinglePollerMode

QUICK, SLOW = 0.0001, 0.01


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def handle_event(
    mode: SinglePollerMode, clock: Clock, seconds: float, runs_call: bool = True
) -> None:
    began = mode.begin_event()
    clock.now += seconds
    if runs_call:
        mode.mark_call_run()
    mode.end_event(began)


def active_mode(clock: Clock) -> SinglePollerMode:
    mode = SinglePollerMode(clock)
    for _ in range(64):
        handle_event(mode, clock, QUICK)
    return mode


def end_trial(mode: SinglePollerMode, clock: Clock) -> None:
    """Handle slow events until a trial of the mode has begun and ended."""
    for _ in range(3):
        handle_event(mode, clock, SLOW)
    assert not mode.is_active


def waiting_thread(mode: SinglePollerMode) -> threading.Thread:
    thread = threading.Thread(target=mode.wait_turn, daemon=True)
    thread.start()
    return thread


def test_mode_begins_after_64_quick_events() -> None:
    clock = Clock()
    mode = SinglePollerMode(clock)
    for _ in range(63):
        handle_event(mode, clock, QUICK)
    assert not mode.is_active
    handle_event(mode, clock, QUICK)
    assert mode.is_active


def test_slow_event_restarts_the_count() -> None:
    clock = Clock()
    mode = SinglePollerMode(clock)
    end_trial(mode, clock)
    for seconds in (*[QUICK] * 63, SLOW, *[QUICK] * 63):
        handle_event(mode, clock, seconds)
    assert not mode.is_active


def test_slow_event_begins_a_trial_that_two_further_slow_events_end() -> None:
    clock = Clock()
    mode = SinglePollerMode(clock)
    active = []
    for _ in range(3):
        handle_event(mode, clock, SLOW)
        active.append(mode.is_active)
    assert active == [True, True, False]


def test_pause_between_trials_doubles_until_64_events_are_quick() -> None:
    clock = Clock()
    mode = SinglePollerMode(clock)
    handle_event(mode, clock, SLOW)

    def check_pause(pause: float) -> None:
        began = clock.now
        for _ in range(2):
            handle_event(mode, clock, SLOW)
        clock.now = began + pause - 1.5 * SLOW
        handle_event(mode, clock, SLOW)
        assert not mode.is_active
        handle_event(mode, clock, SLOW)
        assert mode.is_active

    for pause in (0.05, 0.1, 0.2):
        check_pause(pause)
    for _ in range(64):
        handle_event(mode, clock, QUICK)
    mode.deactivate()
    clock.now += 1
    handle_event(mode, clock, SLOW)
    check_pause(0.05)


def test_event_that_runs_no_call_counts_as_quick() -> None:
    clock = Clock()
    mode = SinglePollerMode(clock)
    for seconds in (*[QUICK] * 63, SLOW):
        handle_event(mode, clock, seconds, runs_call=False)
    assert mode.is_active


def test_mode_ends_while_an_event_takes_long() -> None:
    clock = Clock()
    mode = active_mode(clock)
    mode.begin_event()
    waiting = waiting_thread(mode)
    clock.now += SLOW
    waiting.join(10)
    assert not waiting.is_alive()
    assert not mode.is_active


def test_mode_ends_when_many_events_are_slow() -> None:
    clock = Clock()
    mode = active_mode(clock)
    # A polling thread handles two short events between two calls.
    for _ in range(64):
        for seconds in (QUICK, QUICK, 0.001):
            handle_event(mode, clock, seconds)
    assert not mode.is_active


def test_mode_survives_rare_slow_events() -> None:
    clock = Clock()
    mode = active_mode(clock)
    for _ in range(64):
        for seconds in (*[QUICK] * 10, 0.001):
            handle_event(mode, clock, seconds)
    assert mode.is_active


def test_next_waiting_thread_watches_when_the_first_one_leaves() -> None:
    clock = Clock()
    mode = active_mode(clock)
    with mode._watch_lock:
        waiting = waiting_thread(mode)
        waiting.join(0.1)
        assert waiting.is_alive()
    mode.begin_event()
    clock.now += SLOW
    waiting.join(10)
    assert not waiting.is_alive()


def test_mode_ends_without_events() -> None:
    mode = active_mode(Clock())
    waiting = [waiting_thread(mode) for _ in range(3)]
    for thread in waiting:
        thread.join(10)
    assert not mode.is_active


def test_poller_does_not_wait_for_itself() -> None:
    mode = active_mode(Clock())
    mode.wait_turn()
    assert mode.is_active


def test_closed_mode_ends_and_never_begins_again() -> None:
    clock = Clock()
    mode = active_mode(clock)
    waiting = waiting_thread(mode)
    mode.close()
    waiting.join(10)
    for _ in range(64):
        handle_event(mode, clock, QUICK)
    assert not mode.is_active
