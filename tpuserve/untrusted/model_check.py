"""Checks an untrusted SavedModel before a server loads it, because loading runs some of its ops."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuserve.errors import UnsafeModel
from tpuserve.graph.references import attribute_value, node_name, tensor_name
from tpuserve.saved_model.op_packages import (
    NO_IMPORTS,
    ImportedOps,
    find_package,
    unknown_ops_error,
)
from tpuserve.untrusted.op_families import UNKNOWN, Permission, op_families
from tpuserve.untrusted.program import Program, Run, Site
from tpuserve.untrusted.sizes import check_sizes

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


_ADVICE = "or serve it with --forbid_unsafe_ops=false if you trust it."
# If the system refuses to start more threads, TensorFlow ends the process.
_MAX_THREADS = 1024


def check_model(
    meta_graphs: Iterable[Any],
    directory: Path,
    *,
    forbid_unsafe_ops: bool,
    max_constant_bytes: int,
    imported_ops: ImportedOps = NO_IMPORTS,
) -> None:
    """Check what the ops of a SavedModel can do, and how much memory its constants need.

    Args:
      forbid_unsafe_ops: whether to refuse unknown ops, and ops that can do more than compute, such
        as open files.
      max_constant_bytes: the memory, in bytes, that constants and tensors of a size in the file may
        need in addition to the size of the constants in the file; 0 for no limit.
      imported_ops: the ops that the user has named are allowed.

    Raises:
      UnsafeModel: an op can do more than compute, or opens a file that is not the model's own.
      ModelTooLarge: constants become too large, or the graph has too many nodes after functions
        are inlined.
      UnsupportedModel: an op is unknown.
    """
    programs = [Program(meta_graph) for meta_graph in meta_graphs]
    if forbid_unsafe_ops:
        _check_ops(programs, directory, imported_ops)
        for program in programs:
            _check_runs(program, directory)
    if max_constant_bytes:
        for program in programs:
            check_sizes(program, max_constant_bytes, directory)


def _check_ops(programs: Sequence[Program], directory: Path, imported_ops: ImportedOps) -> None:
    """Refuse ops that can do more than compute, or that nobody has reviewed."""
    refused: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    # The packages of the refused ops; None for TensorFlow.
    packages: set[str | None] = set()
    for program in programs:
        for site in program.all_sites():
            op = site.node.op
            if op in program.functions or op in imported_ops.named:
                continue
            family = op_families().get(op, UNKNOWN)
            if family is UNKNOWN:
                unknown[op] += 1
            elif family.permission is Permission.REFUSED:
                refused[f"{op} ({family.name})"] += 1
                packages.add(find_package(op))
            elif attribute := _unsafe_attribute(site.node):
                refused[f"{op} ({attribute})"] += 1
                packages.add(None)
    if unknown:
        raise unknown_ops_error(directory, unknown)
    if refused:
        names = ",".join(sorted(filter(None, packages)))
        advice = (
            _ADVICE if None in packages else f"or name {names} with --import_ops if you trust it."
        )
        raise UnsafeModel(
            f"{directory} holds ops that are not known to compute only: {_format_counts(refused)}. "
            f"Export the model without them, {advice}"
        )


def _format_counts(ops: Counter[str]) -> str:
    return ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))


def _check_runs(program: Program, directory: Path) -> None:
    """Refuse runs that open files which are not the model's own, or execute ops that are HELD."""
    runs = program.runs(directory)
    tracer = PathTracer(program, runs)
    for run in runs:
        for site in run.sites:
            family = op_families().get(site.node.op, UNKNOWN)
            if family.permission is Permission.HELD:
                raise UnsafeModel(
                    f"{directory} does more than compute during {run.purpose}: {site} is for "
                    f"{family.name}. Export the model with signatures that only compute, {_ADVICE}"
                )
            if family.permission is Permission.FILE and not tracer.is_own_path(
                run, site, family.path_input
            ):
                raise UnsafeModel(
                    f"{directory} opens files that are not its own during {run.purpose}: the path "
                    f"of {site} is no asset. Export the file as an asset, {_ADVICE}"
                )


def _starts_few_threads(value: int) -> bool:
    return value <= _MAX_THREADS


def _is_no_descriptor_file(value: bytes) -> bool:
    return value in (b"", b"local://") or value.startswith(b"bytes://")


def _calls_no_native_code(value: bytes) -> bool:
    # Text in place of MLIR's bytecode could hide the name behind escape sequences.
    return value.startswith(b"ML\xefR") and b"custom_call" not in value


# Op type → an attribute by which the op opens files, calls native code or starts many threads: its
# name, its field of AttrValue, and whether a value is safe.
_ATTRIBUTES: Mapping[str, tuple[str, str, Callable[[Any], bool]]] = {
    "Batch": ("num_batch_threads", "i", _starts_few_threads),
    "BatchFunction": ("num_batch_threads", "i", _starts_few_threads),
    "DecodeProtoV2": ("descriptor_source", "s", _is_no_descriptor_file),
    "EncodeProto": ("descriptor_source", "s", _is_no_descriptor_file),
    "FixedUnigramCandidateSampler": ("vocab_file", "s", (b"").__eq__),
    "PrintV2": ("output_stream", "s", (b"", b"stderr", b"stdout").__contains__),
    "XlaCallModule": ("module", "s", _calls_no_native_code),
}


def _unsafe_attribute(node: Any) -> str:
    name, field, is_safe = _ATTRIBUTES.get(node.op, ("", "", bool))
    if name not in node.attr:
        return ""
    # In a function, the value can be a placeholder, which each caller sets. It counts as unsafe.
    attribute = attribute_value(node, name)
    known = attribute.WhichOneof("value") == field
    return "" if known and is_safe(getattr(attribute, field)) else name
