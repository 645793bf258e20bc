"""The session runs that a server makes with a metagraph, and the paths that these runs may open."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tpuserve.graph.pruning import needed_nodes
from tpuserve.saved_model import initialisation
from tpuserve.saved_model.signature import INIT_SIGNATURE
from tpuserve.untrusted.program import Program, Reached, Site, tensor_name


@dataclass(frozen=True)
class ModelRun:
    """One kind of session run.

    Attributes:
      purpose: what the run is for, for error messages.
      reached: the nodes that the run may execute.
      paths: the tensors whose values are paths of the model's own files.
      fed: the tensors whose values clients choose.
    """

    purpose: str
    reached: Reached
    paths: frozenset[str]
    fed: frozenset[str] = frozenset()


def find_model_runs(program: Program, directory: Path) -> list[ModelRun]:
    """Return the runs that load a metagraph, and the runs that answer requests.

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
    # A client may feed any tensor that is an input of a signature, even the path of an asset.
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
    """Return the import of the graph as a run, because TensorFlow then computes constants.

    TensorFlow infers shapes from these constants. The import covers nodes that no session run
    executes, but no bodies of functions.
    """
    names = sorted(needed_nodes(program.meta_graph) & program.nodes.keys())
    sites = [Site("", program.nodes[name]) for name in names]
    return ModelRun("the import of the graph", Reached(sites, {}), frozenset())


def _requests(program: Program) -> dict[frozenset[str], set[str]]:
    """Return the runs that clients can request: fed tensors → all tensors fetched with them."""
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
