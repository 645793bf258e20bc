"""Dead-code elimination for the body of the While loop that runs the steps on a TPU.

In a TensorFlow 1 graph an op runs only if a fetch depends on it.
"""

from typing import Any

import tensorflow as tf

from tpuserve.graph.references import node_name
from tpuserve.graph.traversal import find_reachable
from trainer.tensorflow_internals import defined_function, get_private_attribute


def prune_while_body(loop: Any) -> None:
    """Remove the nodes of a While op's body that do not contribute to the results of the body.

    Args:
      loop: the While operation, in the default graph.
    """
    graph = tf.compat.v1.get_default_graph()
    name = loop.get_attr("body").name
    library = graph.as_graph_def().library.function
    body = next(function for function in library if function.signature.name == name)
    live_nodes = _find_live_nodes(body)
    if len(live_nodes) == len(body.node_def):
        return
    pruned = type(body)()
    pruned.CopyFrom(body)
    pruned.signature.name = f"{name}_pruned"
    del pruned.node_def[:]
    pruned.node_def.extend(node for node in body.node_def if node.name in live_nodes)
    get_private_attribute(graph, "_add_function")(defined_function._from_definition(pruned))
    get_private_attribute(loop, "_set_func_attr")("body", pruned.signature.name)


def _find_live_nodes(body: Any) -> set[str]:
    nodes = {node.name: node for node in body.node_def}
    results = [*body.ret.values(), *body.control_ret.values()]
    return find_reachable(
        map(node_name, results),
        lambda name: map(node_name, nodes[name].input) if name in nodes else None,
    )
