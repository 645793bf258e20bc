"""Lets TensorFlow's XLA bridge on a CPU translate XlaCallModule ops for another platform."""

from collections.abc import Iterator
from typing import Any

from tpuserve.graph.attributes import attribute_value
from tpuserve.saved_model.stablehlo_modules import CALL_MODULE, describe_module

# The platform on which TensorFlow's XLA bridge, which translates to StableHLO, runs.
_TRANSLATED_ON = b"CPU"


def find_refusals(graph: Any, platform: str) -> dict[str, str]:
    """Return the functions that call a module which does not run on a platform.

    Args:
      graph: a GraphDef with its function library.
      platform: "CPU" or "TPU".

    Returns:
      Function name → why the module does not run there, and what to do.
    """
    refusals = {}
    for function, node in _call_modules(graph):
        module = describe_module(node)
        if not module.runs_on(platform):
            refusals[function] = module.why_not_on(platform)
    return refusals


def retarget_modules(graph: Any, platform: str) -> Any:
    """Make TensorFlow's bridge for the CPU translate the modules of a graph for a platform.

    A module may hold code for several platforms. It selects the code by the index of a platform in
    the attribute `platforms`, and the bridge always passes the index of "CPU". Therefore this
    function exchanges "CPU" and the platform in the attribute.

    Args:
      graph: a GraphDef with its function library; it is not changed.
      platform: "CPU" or "TPU".

    Returns:
      The graph, or a changed copy.
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
    """Yield each XlaCallModule node of the functions of a graph, with the function's name."""
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == CALL_MODULE:
                yield function.signature.name, node
