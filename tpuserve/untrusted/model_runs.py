"""Finds the session runs that a server makes with a metagraph, to check what they can do.

The runs restore the variables, initialise the model, and answer requests. For each run, this module
finds the nodes that it can execute, and the tensors that are paths of the model's own files.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tpuserve.graph.pruning import needed_nodes
from tpuserve.graph.references import tensor_name
from tpuserve.saved_model import initialisation
from tpuserve.saved_model.signature import INIT_SIGNATURE
from tpuserve.untrusted.program import Program, ReachableNodes, Site


@dataclass(frozen=True)
class ModelRun:
    """One kind of session run that a server makes with a metagraph, such as answering requests.

    Attributes:
      purpose: what the run does, such as "the initialisation", for error messages.
      reached: the nodes that the run can execute.
      paths: the names of the tensors whose values are paths of the model's own files.
      fed: the names of the tensors whose values clients choose.
    """

    purpose: str
    reached: ReachableNodes
    paths: frozenset[str]
    fed: frozenset[str] = frozenset()


def find_model_runs(program: Program, directory: Path) -> list[ModelRun]:
    """Return the kinds of session runs that a server makes with a metagraph.

    They are the restore of the variables, the initialisation, and the answer to a request.

    Args:
      program: the metagraph.
      directory: the directory of the SavedModel.

    Raises:
      DamagedSavedModel: an asset or an initialisation op is not valid.
    """
    meta_graph = program.meta_graph
    saver = meta_graph.saver_def
    assets = frozenset(map(tensor_name, initialisation.find_assets(meta_graph, directory)))
    constants = frozenset(name for name in assets if _is_path_constant(program, name))
    init_op = initialisation.find_init_op(meta_graph, directory)
    filename = tensor_name(saver.filename_tensor_name)
    requests = _requests(program)
    # A malicious model can have a signature whose input is the path of an asset, so that clients
    # can choose the path. In requests, such a path does not count as one of the model's own files.
    fed_by_clients = frozenset().union(*requests)
    return [
        ModelRun(
            "the restore of the variables",
            program.reach([([saver.restore_op_name], frozenset({filename}))]),
            constants | {filename},
        ),
        ModelRun("the initialisation", program.reach([([init_op], assets)]), constants | assets),
        ModelRun(
            "a request",
            program.reach((fetches, feeds) for feeds, fetches in requests.items()),
            constants - fed_by_clients,
            fed_by_clients,
        ),
    ]


def find_import(program: Program) -> ModelRun:
    """Describe TensorFlow's import of the graph as a ModelRun, to check how much memory it needs.

    During this import, TensorFlow computes constant tensors in order to infer shapes. It does so
    also for nodes that no session run executes, but not in the bodies of functions.
    """
    names = sorted(needed_nodes(program.meta_graph) & program.nodes.keys())
    sites = [Site("", program.nodes[name]) for name in names]
    return ModelRun("the import of the graph", ReachableNodes(sites, {}), frozenset())


def _requests(program: Program) -> dict[frozenset[str], set[str]]:
    """Return the feeds and fetches of the signatures that clients can call.

    Returns:
      The names of the fed tensors → the names of all tensors that are fetched with these feeds.
    """
    requests: dict[frozenset[str], set[str]] = defaultdict(set)
    for name, signature in program.meta_graph.signature_def.items():
        if name != INIT_SIGNATURE:
            feeds = frozenset(tensor_name(info.name) for info in signature.inputs.values())
            requests[feeds].update(info.name for info in signature.outputs.values())
    return requests


def _is_path_constant(program: Program, tensor: str) -> bool:
    name, _, index = tensor.partition(":")
    node = program.nodes.get(name)
    return node is not None and index == "0" and initialisation.is_path_constant(node)
