"""tf.contrib.rnn's stacks of bidirectional layers."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting

v1 = tf.compat.v1
_States = Sequence[Any] | None
_Stack = tuple[Any, tuple[Any, ...], tuple[Any, ...]]


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: _States = None,
    initial_states_bw: _States = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> _Stack:
    """Run layers of two cells each; both outputs of a layer are the input of the next.

    Returns:
      The outputs of the last layer, [b, time, depth], and the last states of the layers' forward
      and of their backward cells.
    """

    def run_layer(values: Any, *arguments: Any) -> Any:
        outputs, states = v1.nn.bidirectional_dynamic_rnn(
            *arguments[:2],
            values,
            sequence_length,
            *arguments[2:],
            dtype,
            parallel_iterations,
            swap_memory,
            time_major,
        )
        return tf.concat(outputs, 2), *states

    states = initial_states_fw, initial_states_bw
    return _stack(run_layer, (cells_fw, cells_bw), inputs, states, scope)


def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: _States = None,
    initial_states_bw: _States = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> _Stack:
    """Run layers of two cells each on a list of inputs, [b, depth], with all steps in the graph.

    `stack_bidirectional_dynamic_rnn` says what is returned; here the outputs are a list.
    """

    def run_layer(values: Any, *arguments: Any) -> Any:
        return v1.nn.static_bidirectional_rnn(
            *arguments[:2],
            values,
            *arguments[2:],
            dtype,
            sequence_length,
            v1.get_variable_scope(),
        )

    states = initial_states_fw, initial_states_bw
    return _stack(run_layer, (cells_fw, cells_bw), inputs, states, scope)


def _stack(
    run_layer: Callable[..., Any],
    cells: tuple[Sequence[Any], Sequence[Any]],
    values: Any,
    initial_states: tuple[_States, _States],
    scope: Any,
) -> _Stack:
    lengths = {len(part) for part in (*cells, *initial_states) if part is not None}
    if len(lengths) > 1 or 0 in lengths:
        raise InvalidSetting(
            f"A stack of bidirectional layers got {len(cells[0])} forward cells, "
            f"{len(cells[1])} backward cells, or another number of states. Give each layer one of "
            f"each."
        )
    states = []
    nones = [None] * len(cells[0])
    layers = zip(*cells, *(part or nones for part in initial_states), strict=True)
    with v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, layer in enumerate(layers):
            with v1.variable_scope(f"cell_{number}"):
                values, *layer_states = run_layer(values, *layer)
            states.append(layer_states)
    forward, backward = zip(*states, strict=True)
    return values, forward, backward
