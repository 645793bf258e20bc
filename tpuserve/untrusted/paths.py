"""Finds out whether an op of an untrusted model opens only files of the model itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.graph.attributes import attribute_value
from tpuserve.graph.references import node_name, tensor_name
from tpuserve.untrusted.model_runs import ModelRun
from tpuserve.untrusted.program import FIRST_ARGUMENT, Program, Site

_STRING = 7
# Ops that return their first input unchanged. `PathTracer` skips them when it searches for the
# tensor from which a file path comes.
_FORWARDING_OPS = frozenset({"Identity", "Snapshot", "StopGradient"})
# Ops that only read a variable, although their names begin with "Resource". All other ops with such
# a name count as ops that write to a variable.
_READING_OPS = frozenset({"ResourceGather", "ResourceGatherNd"})
# The largest length of a chain of TensorFlow variables through which a path is traced. In a chain,
# each variable is assigned the value of the next variable. A path that comes from a longer chain
# counts as unsafe.
_MAX_CHAIN = 10


@dataclass(frozen=True)
class _Source:
    """The tensor from which a value, such as a file path, comes.

    Ops that only forward the value to another op are skipped.

    Attributes:
      function: the function that has the tensor; empty for the main graph.
      reference: the name of the tensor, such as "y:0".
      node: the NodeDef of the node that computes the tensor.
    """

    function: str
    reference: str
    node: Any


class PathTracer:
    """Finds the origin of the path when an op opens a file.

    The path can come through function calls and variables. In an export of TensorFlow 2, the path
    of an asset is fed to a placeholder. The initialisation op assigns the path to a variable, from
    which functions read the path.
    """

    def __init__(self, program: Program, runs: Sequence[ModelRun]) -> None:
        """Create a tracer for a metagraph.

        Args:
          program: the metagraph.
          runs: all session runs that a server makes with the metagraph.
        """
        self._program = program
        self._string_writes = [
            (run, site) for run in runs for site in run.reached.sites if _writes_strings(site.node)
        ]
        self._path_variables: dict[str, bool] = {}
        self._chain_length = 0

    def is_own_path(self, run: ModelRun, site: Site, position: int) -> bool:
        """Return whether an input of a node is always the path of a file of the model itself.

        If the node is in a function, this must be true for every call of the function.

        Args:
          run: the session run that executes the node.
          site: the node, and the function that has it.
          position: the position of the input.
        """
        sources = self._sources(run, site, position)
        return sources is not None and all(self._is_path(run, source) for source in sources)

    def _is_path(self, run: ModelRun, source: _Source) -> bool:
        if _is_fed_path(run, source.function, source.reference):
            return True
        if source.node.op != "ReadVariableOp":
            return False
        names = self._variable_names(run, Site(source.function, source.node))
        return names is not None and all(map(self._is_path_variable, names))

    def _is_path_variable(self, name: str) -> bool:
        """Return whether a variable can only have values that are paths of the model's own files.

        All assignments to the variable in all session runs are examined.

        Args:
          name: the name of the variable.
        """
        if name not in self._path_variables:
            if self._chain_length > _MAX_CHAIN:
                return False
            # Store the result True while the assignments of the variable are examined. Without a
            # stored result, the examination of a variable that is assigned its own value would not
            # end.
            self._path_variables[name] = True
            self._chain_length += 1
            is_path = all(
                site.node.op == "AssignVariableOp" and self.is_own_path(run, site, 1)
                for run, site in self._string_writes
                if self._may_write(run, site, name)
            )
            self._chain_length -= 1
            if not is_path:
                # The variable can have values that are not paths, so the result True, which was
                # stored above, is wrong. Drop the results of all variables: some can depend on the
                # wrong result.
                self._path_variables.clear()
            self._path_variables[name] = is_path
        return self._path_variables[name]

    def _may_write(self, run: ModelRun, site: Site, name: str) -> bool:
        names = self._variable_names(run, site)
        return names is None or name in names

    def _variable_names(self, run: ModelRun, site: Site) -> set[str] | None:
        """Return the names of the variables that can be the first input of a node.

        Args:
          run: the session run that executes the node.
          site: a node that reads or writes a variable, and the function that has the node.

        Returns:
          The names; None if the input can be any variable.
        """
        sources = self._sources(run, site, 0)
        if sources is None or not all(_has_fixed_name(source.node) for source in sources):
            return None
        return {
            attribute_value(source.node, "shared_name").s.decode(errors="replace")
            or source.node.name
            for source in sources
        }

    def _sources(self, run: ModelRun, site: Site, position: int) -> list[_Source] | None:
        """Return the tensors from which an input of a node can come.

        Ops that only forward a value are skipped. If the node is in a function, the tensors can be
        outside of it, in the graphs that call the function.

        Args:
          run: the session run that executes the node.
          site: the node, and the function that has it.
          position: the position of the input.

        Returns:
          The tensors; None if they are unknown.
        """
        pending = [(site, position)]
        visited: set[tuple[str, str]] = set()
        sources = []
        while pending:
            site, position = pending.pop()
            if position >= len(site.node.input):
                return None
            name, reference = site.function, site.node.input[position]
            if (name, reference) in visited:
                continue
            visited.add((name, reference))
            if name and reference in self._program.arguments(name):
                calls = self._calls(run, name, self._program.arguments(name).index(reference))
                if calls is None:
                    return None
                pending += calls
                continue
            node = self._program.find_node(name, node_name(reference))
            if node is None or (not name and tensor_name(reference) in run.fed):
                return None
            if node.op in _FORWARDING_OPS and not _is_fed_path(run, name, reference):
                pending.append((Site(name, node), 0))
            else:
                sources.append(_Source(name, reference, node))
        return sources

    def _calls(self, run: ModelRun, name: str, index: int) -> list[tuple[Site, int]] | None:
        """Find the node input that each call of a function passes as a certain argument.

        Args:
          run: the session run that calls the function.
          name: the name of the function.
          index: the position of this argument.

        Returns:
          For each call, the calling node and the position of its input that is passed; None if this
          is unknown for a call.
        """
        function = self._program.functions[name]
        if any(arg.number_attr or arg.type_list_attr for arg in function.signature.input_arg):
            return None
        calls = []
        for site in run.reached.callers[name]:
            is_legacy = site.node.op in self._program.functions
            is_direct = name in self._program.directly_called_functions(site.node)
            if not is_direct or not (is_legacy or site.node.op in FIRST_ARGUMENT):
                return None
            calls.append((site, index + (0 if is_legacy else FIRST_ARGUMENT[site.node.op])))
        return calls


def _is_fed_path(run: ModelRun, function: str, reference: str) -> bool:
    return not function and tensor_name(reference) in run.paths


def _writes_strings(node: Any) -> bool:
    """Return whether a node can write a string, which could be a path, to a variable.

    The variable is the first input of the node.
    """
    return (
        node.op.startswith(("Assign", "Resource"))
        and node.op not in _READING_OPS
        and any(attribute.type == _STRING for attribute in node.attr.values())
    )


def _has_fixed_name(node: Any) -> bool:
    """Return whether a node is a VarHandleOp with a fixed variable name.

    In a function, the name can instead be a placeholder, whose value each caller of the function
    sets.
    """
    return node.op == "VarHandleOp" and not attribute_value(node, "shared_name").placeholder
