"""The loop of a step without what nobody waits for.

In a graph of version 1 an op runs only if something that runs needs it. In the body of a
functional loop ops with an effect run all the same: a train_op that model_fn builds in an
evaluation would train, and updates that it leaves out of train_op would be made.
"""

from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import defined_function


def prune_while_body(loop: Any) -> None:
    """Gives a While a body in which only that runs which its results need.

    Args:
      loop: the operation.
    """
    graph = tf.compat.v1.get_default_graph()
    name = loop.get_attr("body").name
    library = graph.as_graph_def().library.function
    body = next(each for each in library if each.signature.name == name)
    wanted = _wanted(body)
    if len(wanted) == len(body.node_def):
        return
    smaller = type(body)()
    smaller.CopyFrom(body)
    smaller.signature.name = f"{name}_wanted"
    del smaller.node_def[:]
    smaller.node_def.extend(each for each in body.node_def if each.name in wanted)
    graph._add_function(defined_function._from_definition(smaller))
    loop._set_func_attr("body", smaller.signature.name)


def _wanted(body: Any) -> set[str]:
    """The names of the nodes that the results of a function need."""
    nodes = {each.name: each for each in body.node_def}
    pending = [*body.ret.values(), *body.control_ret.values()]
    found: set[str] = set()
    while pending:
        name = pending.pop().lstrip("^").split(":")[0]
        if name in nodes and name not in found:
            found.add(name)
            pending.extend(nodes[name].input)
    return found
