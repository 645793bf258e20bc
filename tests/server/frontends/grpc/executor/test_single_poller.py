import threading

from server.frontends.grpc.executor.single_poller import SinglePollerMode

QUICK, SLOW = 0.0001, 0.01


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def answer(solo: SinglePollerMode, clock: Clock, seconds: float) -> None:
    began = solo.begin()
    clock.now += seconds
    solo.end(began)


def alone(clock: Clock) -> SinglePollerMode:
    solo = SinglePollerMode(clock)
    for _ in range(64):
        answer(solo, clock, QUICK)
    return solo


def other(solo: SinglePollerMode) -> threading.Thread:
    thread = threading.Thread(target=solo.wait_turn, daemon=True)
    thread.start()
    return thread


def test_quick_calls_are_answered_by_one_thread_alone() -> None:
    clock = Clock()
    solo = SinglePollerMode(clock)
    for _ in range(63):
        answer(solo, clock, QUICK)
    assert not solo.is_on
    answer(solo, clock, QUICK)
    assert solo.is_on


def test_a_call_that_is_not_quick_begins_the_count_anew() -> None:
    clock = Clock()
    solo = SinglePollerMode(clock)
    for seconds in (*[QUICK] * 63, SLOW, *[QUICK] * 63):
        answer(solo, clock, seconds)
    assert not solo.is_on


def test_others_go_on_once_a_call_takes_long() -> None:
    clock = Clock()
    solo = alone(clock)
    solo.begin()
    waiting = other(solo)
    clock.now += SLOW
    waiting.join(10)
    assert not waiting.is_alive()
    assert not solo.is_on


def test_others_go_on_once_many_calls_are_no_longer_quick() -> None:
    clock = Clock()
    solo = alone(clock)
    # One that answers calls deals with two events between two of them.
    for _ in range(64):
        for seconds in (QUICK, QUICK, 0.001):
            answer(solo, clock, seconds)
    assert not solo.is_on


def test_a_call_now_and_then_that_is_not_quick_ends_nothing() -> None:
    clock = Clock()
    solo = alone(clock)
    for _ in range(64):
        for seconds in (*[QUICK] * 10, 0.001):
            answer(solo, clock, seconds)
    assert solo.is_on


def test_who_watches_is_replaced_while_one_is_alone() -> None:
    clock = Clock()
    solo = alone(clock)
    with solo._is_watched:
        waiting = other(solo)
        waiting.join(0.1)
        assert waiting.is_alive()
    solo.begin()
    clock.now += SLOW
    waiting.join(10)
    assert not waiting.is_alive()


def test_others_go_on_once_nothing_comes() -> None:
    solo = alone(Clock())
    waiting = [other(solo) for _ in range(3)]
    for each in waiting:
        each.join(10)
    assert not solo.is_on


def test_the_one_alone_does_not_wait_for_itself() -> None:
    solo = alone(Clock())
    solo.wait_turn()
    assert solo.is_on


def test_after_the_end_nobody_is_alone() -> None:
    clock = Clock()
    solo = alone(clock)
    waiting = other(solo)
    solo.close()
    waiting.join(10)
    for _ in range(64):
        answer(solo, clock, QUICK)
    assert not solo.is_on
