"""Finds out whether an op of an untrusted model opens only files of the model itself."""

from collections.abc import Iterator, Sequence
from typing import Any

from tpuserve.graph.attributes import attribute_value
from tpuserve.graph.references import node_name, tensor_name
from tpuserve.untrusted.program import Program, Run, Site

_STRING = 7
_FORWARDING_OPS = frozenset({"Identity", "Snapshot", "StopGradient"})
# All other ops whose names begin with "Resource" count as ops that write to a variable.
_READING_OPS = frozenset({"ResourceGather", "ResourceGatherNd"})


class PathTracer:
    """Follows the path of a file that an op opens to its sources, in all runs of a metagraph.

    In an export of TensorFlow 2, the initialisation assigns the path of an asset to a variable,
    from which functions read it.
    """

    def __init__(self, program: Program, runs: Sequence[Run]) -> None:
        self._program = program
        self._writes = [
            (run, site, self._variables(run, site))
            for run in runs
            for site in run.sites
            if _writes_strings(site.node)
        ]

    def is_own_path(self, run: Run, site: Site, position: int) -> bool:
        """Return whether an input of a node is always the path of a file of the model itself."""
        pending = [(run, site, position)]
        visited: set[str] = set()
        while pending:
            run, site, position = pending.pop()
            for source in self._sources(run, site, position):
                if source is None:
                    return False
                function, reference, node = source
                if run.is_own_path(function, reference):
                    continue
                if node.op != "ReadVariableOp":
                    return False
                names = self._variables(run, Site(function, node))
                if names is None:
                    return False
                new = names - visited
                visited |= new
                for writing_run, write, written in self._writes if new else ():
                    if written is None or written & new:
                        if write.node.op != "AssignVariableOp":
                            return False
                        pending.append((writing_run, write, 1))
        return True

    def _variables(self, run: Run, site: Site) -> set[str] | None:
        """Return the names of the variables that a node can read or write; None for any."""
        names = set()
        for source in self._sources(run, site, 0):
            if source is None or source[2].op != "VarHandleOp":
                return None
            name = attribute_value(source[2], "shared_name")
            # In a function, the name can be a placeholder, whose value each caller sets.
            if name.placeholder:
                return None
            names.add(name.s.decode(errors="replace") or source[2].name)
        return names

    def _sources(
        self, run: Run, site: Site, position: int
    ) -> Iterator[tuple[str, str, Any] | None]:
        """Yield the function, name and node of each tensor that an input can be; None: unknown."""
        pending: list[tuple[Site, int] | None] = [(site, position)]
        visited: set[tuple[str, str]] = set()
        while pending:
            step = pending.pop()
            if step is None or step[1] >= len(step[0].node.input):
                yield None
                continue
            name, reference = step[0].function, step[0].node.input[step[1]]
            if (name, reference) in visited:
                continue
            visited.add((name, reference))
            arguments = self._program.arguments.get(name, {})
            if reference in arguments:
                pending += self._program.passed(run, name, arguments[reference])
                continue
            node = self._program.nodes[name].get(node_name(reference))
            if node is None or (not name and tensor_name(reference) in run.fed):
                yield None
            elif node.op in _FORWARDING_OPS and not run.is_own_path(name, reference):
                pending.append((Site(name, node), 0))
            else:
                yield name, reference, node


def _writes_strings(node: Any) -> bool:
    return (
        node.op.startswith(("Assign", "Resource"))
        and node.op not in _READING_OPS
        and any(attribute.type == _STRING for attribute in node.attr.values())
    )
