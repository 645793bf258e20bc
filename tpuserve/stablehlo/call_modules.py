"""Selects the platform of XlaCallModule ops for a translation on another platform."""

from collections.abc import Iterator
from typing import Any

from tpuserve.saved_model.stablehlo_modules import CALL_MODULE, describe_module

# The platform of TensorFlow's bridge, which translates to StableHLO.
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

    The bridge passes each module the index of "CPU" in the attribute `platforms`, by which the
    module selects the code for a platform. Therefore "CPU" changes places with the platform.

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
        platforms = node.attr["platforms"].list.s
        platforms[:] = [exchanged.get(name, name) for name in platforms]
    return retargeted


def _call_modules(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield each XlaCallModule node of the functions of a graph, with the function's name."""
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == CALL_MODULE:
                yield function.signature.name, node
