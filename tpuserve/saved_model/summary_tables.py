"""Prints the description of a SavedModel as tables, for `tpuserve inspect`.

Names come from a file that may be damaged or malicious. Control characters in them are escaped, and
long names and lists are shortened.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tpuserve import tags as tag_sets
from tpuserve.saved_model.metagraph import BatchFunction, Metagraph, SavedModel, TpuComputation
from tpuserve.saved_model.signature import TensorSpec
from tpuserve.saved_model.stablehlo_modules import StableHloModule
from tpuserve.saved_model.summary import sort_by_count
from tpuserve.saved_model.variables import DeclaredVariable
from tpuserve.saved_model.warm_up_file import WarmUpRecord

_MAX_OPS = 6
_MAX_VARIABLES = 3
_MAX_NAMES = 6
_MAX_TENSORS = 200
_MAX_CALLS = 20
_MAX_TEXT = 2000
# The width, in characters, of output that goes to a pipe or a file. It is large so that few lines
# are wrapped and grep finds whole lines.
_PIPE_WIDTH = 200

_UNITS = ("kB", "MB", "GB", "TB")

_UNTAGGED = "TPU computations without the tag tpu: a machine without a TPU lowers them to its CPU"
_UNCALLED = "a computation of tpu.rewrite without a TPUPartitionedCall; its ops are counted below"

_TPU_STYLE = "green"
_HOST_STYLE = "cyan"
_PROBLEM_STYLE = "bold red"


def print_summary(model: SavedModel, console: Console | None = None) -> None:
    """Print a box for each metagraph, and a table of the properties of the whole SavedModel.

    Characters that the encoding of the console does not have are printed as escape sequences.
    """
    console = console or _console()
    with console.capture() as capture:
        size = f"graph {_bytes(model.graph_bytes)}, variables {_bytes(model.variables_bytes)}"
        console.print(_plain(f"{model.directory}: {size}", "bold"), soft_wrap=True)
        for metagraph in model.metagraphs:
            console.print(_panel(metagraph))
        console.print(_shared_table(model))
    text = capture.get().encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.file.write(text)
    console.file.flush()


def _console() -> Console:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return Console(width=_PIPE_WIDTH)
    return console


def _panel(metagraph: Metagraph) -> Panel:
    rows = _rows()
    for computation in metagraph.computations[:_MAX_CALLS]:
        _add_computation(rows, computation)
    _add_more(rows, len(metagraph.computations) - _MAX_CALLS)
    if metagraph.has_tpu_computation and not metagraph.computations:
        rows.add_row("on the TPU", _UNCALLED, style=_TPU_STYLE)
    elif not metagraph.computations:
        rows.add_row("on the TPU", "nothing")
    elif tag_sets.TPU not in metagraph.tags:
        rows.add_row("", _UNTAGGED)
    rows.add_row("on the host", _ops(metagraph.host_ops), style=_HOST_STYLE)
    for batch in metagraph.batch_functions[:_MAX_CALLS]:
        rows.add_row("batches", _plain(_batch(batch)))
    _add_more(rows, len(metagraph.batch_functions) - _MAX_CALLS)
    if metagraph.variables:
        rows.add_row("variables", _plain(_variables(metagraph.variables)))
    if metagraph.stablehlo_modules:
        rows.add_row("StableHLO", _plain(_modules(metagraph.stablehlo_modules)))
    if metagraph.assets:
        rows.add_row("assets", _some(metagraph.assets))
    tags = tag_sets.format_tags(metagraph.tags)
    title = _plain(f"metagraph {tags}, TensorFlow {metagraph.tensorflow_version}")
    content = Group(_signatures(metagraph), "", rows)
    return Panel(content, title=title, title_align="left", expand=False)


def _shared_table(model: SavedModel) -> Table:
    rows = _rows()
    if model.warm_up:
        shown = [_warm_up(record) for record in model.warm_up]
        rows.add_row("warm-up", Text(f"{_number(shown, 'request')}: ").append(_some(shown, "; ")))
    if model.extra_files:
        rows.add_row("extra files", _some(model.extra_files))
    for problem in model.problems:
        rows.add_row("problem", _plain(problem), style=_PROBLEM_STYLE)
    return rows


def _rows() -> Table:
    rows = Table.grid("", "", padding=(0, 2, 0, 0))
    rows.columns[0].style = "bold"
    rows.columns[0].no_wrap = True
    rows.columns[1].overflow = "fold"
    return rows


def _add_computation(rows: Table, computation: TpuComputation) -> None:
    name = computation.name
    if computation.batched_by:
        name += f", batched by {computation.batched_by}"
    rows.add_row(
        "on the TPU", _plain(f"{name}: ").append(_ops(computation.tpu_ops)), style=_TPU_STYLE
    )
    if computation.host_ops:
        rows.add_row("  its host", _ops(computation.host_ops), style=_HOST_STYLE)


def _add_more(rows: Table, count: int) -> None:
    if count > 0:
        rows.add_row("", f"and {count} more")


def _signatures(metagraph: Metagraph) -> Table:
    titles = ("signature", "", "name", "type and shape")
    table = Table(*titles, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    tensors = [
        (name, direction, alias, spec)
        for name, signature in metagraph.signatures.items()
        for direction, specs in (("in", signature.inputs), ("out", signature.outputs))
        for alias, spec in specs.items()
    ]
    before = None
    for name, direction, alias, spec in tensors[:_MAX_TENSORS]:
        shown = "" if name == before else name
        table.add_row(_plain(shown), direction, _plain(alias), _plain(str(spec)))
        before = name
    _add_more(table, len(tensors) - _MAX_TENSORS)
    return table


def _ops(counts: Mapping[str, int]) -> Text:
    ordered = list(sort_by_count(counts).items())
    text = ", ".join(f"{op} {count}" for op, count in ordered[:_MAX_OPS])
    more = len(ordered) - _MAX_OPS
    total = sum(counts.values())
    shown = f"{total} op{'' if total == 1 else 's'}{': ' if text else ''}{text}"
    return _plain(f"{shown} and {more} other type{'' if more == 1 else 's'}" if more > 0 else shown)


def _batch(batch: BatchFunction) -> str:
    sizes = ", ".join(str(size) for size in batch.allowed_batch_sizes[:_MAX_TENSORS])
    return (
        f"{batch.function}: up to {batch.max_batch_size} rows, "
        f"{f'padded to {sizes}' if sizes else 'not padded'}; "
        f"waits {batch.batch_timeout_micros / 1000:g} ms; "
        f"{batch.num_batch_threads} at once, {batch.max_enqueued_batches} in the queue"
    )


def _variables(variables: Iterable[DeclaredVariable]) -> str:
    ordered = sorted(variables, key=lambda variable: -(variable.bytes or 0))
    total = sum(variable.bytes or 0 for variable in ordered)
    unknown = sum(variable.bytes is None for variable in ordered)
    largest = ", ".join(
        f"{variable.name} {TensorSpec(variable.name, variable.dtype, variable.shape)} "
        f"{'of unknown size' if variable.bytes is None else _bytes(variable.bytes)}"
        for variable in ordered[:_MAX_VARIABLES]
    )
    size = f"{_bytes(total)}{f' and {unknown} of unknown size' if unknown else ''}"
    which = "the largest: " if len(ordered) > _MAX_VARIABLES else ""
    return f"{len(ordered)}, {size}; {which}{largest}"


def _modules(modules: Iterable[StableHloModule]) -> str:
    kinds = Counter(
        f"for {', '.join(module.platforms) or 'any platform'}, {module.version or 'damaged'}"
        for module in modules
    )
    return "; ".join(
        f"{count} module{'' if count == 1 else 's'} {kind}"
        for kind, count in sort_by_count(kinds).items()
    )


def _warm_up(record: WarmUpRecord) -> str:
    inputs = ", ".join(
        f"{alias} {spec}" for alias, spec in list(record.inputs.items())[:_MAX_NAMES]
    )
    return f"{record.kind} {record.signature_name} ({inputs})"


def _some(names: Iterable[str], separator: str = ", ") -> Text:
    names = list(names)
    shown = Text(separator).join(_plain(name) for name in names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return shown.append(f" and {more} more") if more > 0 else shown


def _number(items: list[str], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _plain(text: str, style: str = "") -> Text:
    """Convert untrusted text for printing: control characters are escaped, long text is cut."""
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}..."
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
    return Text(shown, style)


def _bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"
