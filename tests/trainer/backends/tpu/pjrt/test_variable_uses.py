"""Which of the variables on the devices a session.run reads and writes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import tensorflow as tf

from trainer.backends.tpu.pjrt.variable_uses import RunUses, VariableUses

v1 = tf.compat.v1


class Program(NamedTuple):
    """A graph with three variables.

    Attributes:
      uses: knows the variables "a" (index 0) and "b" (index 1).
      loop_end: the tensor that stands for the end of the loop.
      a: the variable "a".
      b: the variable "b".
      other: a variable that the step on the devices does not use.
    """

    uses: VariableUses
    loop_end: Any
    a: Any
    b: Any
    other: Any


@pytest.fixture
def program() -> Iterator[Program]:
    with tf.Graph().as_default() as graph:
        loop_end = v1.placeholder_with_default(0, [], name="done")
        a, b, other = (v1.get_variable(name, [], use_resource=True) for name in ("a", "b", "other"))
        yield Program(VariableUses(graph, loop_end, {"a": 0, "b": 1}), loop_end, a, b, other)


def uses(runs_loop: bool = False, reads: Any = (), writes: Any = ()) -> RunUses:
    return RunUses(runs_loop, frozenset(reads), frozenset(writes))


def test_fetch_that_waits_for_the_loop_reads_its_variable(program: Program) -> None:
    with tf.control_dependencies([program.loop_end]):
        loss = tf.identity(program.a.read_value())
    assert program.uses.find_uses({object(): [loss]}, {}) == uses(True, reads=[0])
    assert program.uses.find_uses([program.loop_end.op], {}) == uses(True)


def test_assignment_writes_and_an_update_also_reads(program: Program) -> None:
    assign = program.a.assign(program.b + 1.0, read_value=False)
    update = program.b.assign_add(1.0, read_value=False)
    assert program.uses.find_uses(assign, {}) == uses(reads=[1], writes=[0])
    assert program.uses.find_uses(update.name, {}) == uses(reads=[1], writes=[1])


def test_saver_reads_all_variables(program: Program) -> None:
    saver = v1.train.Saver()
    assert program.uses.find_uses(saver.saver_def.save_tensor_name, {}) == uses(reads=[0, 1])


def test_other_variables_and_fed_tensors_use_nothing(program: Program) -> None:
    double = program.a.read_value() * 2.0
    assert program.uses.find_uses(program.other.read_value(), {}) == uses()
    assert program.uses.find_uses(double, {double.op.inputs[0]: 1.0}) == uses()
    assert program.uses.find_uses(double, {}) == uses(reads=[0])
