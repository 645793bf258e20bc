"""Lets TensorFlow's XLA bridge on a CPU translate XlaCallModule ops for another platform.

An XlaCallModule op, such as one that jax2tf writes, contains a StableHLO module for one or more
platforms.
"""

from collections.abc import Iterator
from typing import Any

from tpuserve.graph.attributes import attribute_value
from tpuserve.saved_model.stablehlo_modules import CALL_MODULE, describe_module

# An XlaCallModule op can contain code for several platforms. On a CPU, TensorFlow's XLA bridge
# translates the code for the platform of this name.
_TRANSLATED_ON = b"CPU"


def find_refusals(graph: Any, platform: str) -> dict[str, str]:
    """Find the functions that contain an XlaCallModule which does not run on a platform.

    Args:
      graph: a GraphDef with its function library.
      platform: "CPU" or "TPU".

    Returns:
      Function name → why the module does not run on the platform and what the user can do, as the
      text of an error message.
    """
    refusals = {}
    for function, node in _call_modules(graph):
        module = describe_module(node)
        if not module.runs_on(platform):
            refusals[function] = module.why_not_on(platform)
    return refusals


def retarget_modules(graph: Any, platform: str) -> Any:
    """Let TensorFlow's XLA bridge translate the XlaCallModule ops of a graph for a platform.

    The module in such an op can contain code for several platforms. The index of a platform in the
    attribute `platforms` selects the code, and the bridge on a CPU always uses the index of "CPU".
    Therefore this function exchanges "CPU" and the other platform in the attribute.

    Args:
      graph: a GraphDef with its function library; it is not changed.
      platform: "CPU" or "TPU".

    Returns:
      The graph itself if nothing must be changed; else a changed copy.
    """
    target = platform.encode()
    if target == _TRANSLATED_ON or not any(_call_modules(graph)):
        return graph
    retargeted = type(graph)()
    retargeted.CopyFrom(graph)
    exchanged = {target: _TRANSLATED_ON, _TRANSLATED_ON: target}
    for _, node in _call_modules(retargeted):
        platforms = attribute_value(node, "platforms").list.s
        platforms[:] = [exchanged.get(name, name) for name in platforms]
    return retargeted


def _call_modules(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name of the function, node) for each XlaCallModule in the functions of a graph."""
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == CALL_MODULE:
                yield function.signature.name, node
