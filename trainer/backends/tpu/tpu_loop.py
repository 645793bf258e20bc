"""The loop of steps that all replicas run, built with TensorFlow's own TPU ops."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.graph.references import node_name
from tpuserve.graph.traversal import find_reachable
from trainer.distribution.topology import BatchTopology
from trainer.embedding import tables
from trainer.execution.step_graph import as_part_of_program
from trainer.tensorflow_internals import defined_function, get_private_attribute, tpu, while_v2


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


def build_tpu_loop(
    build_step: Callable[[Any], Any],
    iterations: Any,
    topology: BatchTopology,
    device_assignment: Any = None,
) -> tuple[Any, Any]:
    """Build the ops that compile and run a loop of steps on every replica.

    Args:
      build_step: called once, inside the loop, with the number of finished steps (int32 []);
        returns the op that makes a step.
      iterations: int32 [], on the host: the number of steps.

    Returns:
      (the op that reports the status of the compilation; a tensor that is available when all
      replicas have finished the loop).
    """

    def computation(count: Any) -> Any:
        context = get_private_attribute(graph, "_get_control_flow_context")()

        def body(done: Any) -> Any:
            tf.compat.v1.add_to_collection(tables.IS_LAST_STEP, done + 1 >= count)
            with as_part_of_program(context):
                step = build_step(done)
            with tf.control_dependencies([step]):
                return done + 1

        return while_v2.while_loop(
            lambda done: done < count,
            body,
            [tf.constant(0)],
            parallel_iterations=1,
            return_same_structure=False,
            name="steps",
        )

    graph = tf.compat.v1.get_default_graph()
    num_earlier_ops = len(graph.get_operations())
    compiled, outputs = tpu.split_compile_and_replicate(
        computation,
        inputs=[[iterations]] * topology.replicas,
        device_assignment=device_assignment,
        name="replicas",
    )
    (loop,) = (node for node in graph.get_operations()[num_earlier_ops:] if node.type == "While")
    prune_while_body(loop)
    _remove_step_tensors_from_collections(graph)
    return compiled, outputs[0][0]


def _remove_step_tensors_from_collections(graph: Any) -> None:
    # Remove the step's tensors from the collections of the graph. A session cannot fetch these
    # tensors, because they are inside the TPU computation.
    for name in graph.get_all_collection_keys():
        members = graph.get_collection_ref(name)
        members[:] = [member for member in members if getattr(member, "graph", graph) is graph]
