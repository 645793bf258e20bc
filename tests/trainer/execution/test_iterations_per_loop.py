from trainer.config.run_config import TPUConfig
from trainer.execution import train_loop


def test_a_fixed_plan_is_limited_by_the_steps_left() -> None:
    plan = train_loop.build_iteration_plan(TPUConfig(10))
    assert (
        plan.max_iterations,
        plan.next_iterations(None),
        plan.next_iterations(25),
        plan.next_iterations(3),
    ) == (10, 10, 10, 3)


def test_a_timed_plan_starts_with_one_step_and_then_fills_the_duration() -> None:
    plan = train_loop.build_iteration_plan(TPUConfig("30s"))
    assert plan.next_iterations(None) == 1
    # The first step is slow, and later steps take 0.1 s each.
    plan.record(1, 3.0)
    assert plan.next_iterations(None) == 10
    plan.record(10, 1.0)
    # 11 steps have taken 4 s in all.
    assert plan.next_iterations(None) == 82
    assert plan.next_iterations(steps_left=5) == 5


def test_only_the_last_twenty_runs_count() -> None:
    plan = train_loop.TimedIterations(10)
    plan.record(1, 1000.0)
    assert plan.next_iterations(None) == 1
    for _ in range(20):
        plan.record(10, 5.0)
    assert plan.next_iterations(None) == 20


def test_steps_too_short_to_measure_stay_within_what_a_loop_can_count() -> None:
    plan = train_loop.TimedIterations(3600)
    plan.record(1, 0.0)
    assert plan.next_iterations(None) == train_loop.UNBOUNDED
