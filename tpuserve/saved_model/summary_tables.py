"""A SavedModel's description as tables for people: what `tpuserve inspect` prints.

Names come from the file, which may be damaged or of ill will: none of them can steer the terminal,
and none is longer than a few lines. All of everything is in `description.as_data`.
"""

import os
from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tpuserve import tags as tag_sets
from tpuserve.saved_model.metagraph import BatchFunction, Metagraph, SavedModel, TpuComputation
from tpuserve.saved_model.signature import TensorSpec
from tpuserve.saved_model.summary import sort_by_count
from tpuserve.saved_model.variables import DeclaredVariable
from tpuserve.saved_model.warm_up_file import WarmUpRecord

_OPS_SHOWN = 6
_VARIABLES_SHOWN = 3
_NAMES_SHOWN = 6
_TENSORS_SHOWN = 200
_CALLS_SHOWN = 20
_LONGEST_TEXT = 2000
# Of what is no terminal, such as a pipe: few lines are broken, so that grep finds whole ones.
_PIPE_WIDTH = 200

_UNITS = ("kB", "MB", "GB", "TB")

_TPU_STYLE = "green"
_HOST_STYLE = "cyan"
_PROBLEM_STYLE = "bold red"


def print_summary(model: SavedModel, console: Console | None = None) -> None:
    """Prints a box per metagraph and what they share, in colour where the console has any.

    A character that the console's encoding lacks is printed as its escape.
    """
    console = console or _console()
    with console.capture() as capture:
        size = f"graph {_bytes(model.graph_bytes)}, variables {_bytes(model.variables_bytes)}"
        console.print(_plain(f"{model.directory}: {size}", "bold"), soft_wrap=True)
        for each in model.metagraphs:
            console.print(_panel(each))
        console.print(_shared(model))
    text = capture.get().encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.file.write(text)
    console.file.flush()


def _console() -> Console:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return Console(width=_PIPE_WIDTH)
    return console


def _panel(each: Metagraph) -> Panel:
    rows = _rows()
    for computation in each.computations[:_CALLS_SHOWN]:
        _add_computation(rows, computation)
    _add_more(rows, len(each.computations) - _CALLS_SHOWN)
    if not each.computations:
        rows.add_row("on the TPU", "nothing")
    rows.add_row("on the host", _ops(each.host_ops), style=_HOST_STYLE)
    for batch in each.batch_functions[:_CALLS_SHOWN]:
        rows.add_row("batches", _plain(_batch(batch)))
    _add_more(rows, len(each.batch_functions) - _CALLS_SHOWN)
    if each.variables:
        rows.add_row("variables", _plain(_variables(each.variables)))
    if each.assets:
        rows.add_row("assets", _some(each.assets))
    title = _plain(
        f"metagraph {tag_sets.format_tags(each.tags)}, TensorFlow {each.tensorflow_version}"
    )
    return Panel(Group(_signatures(each), "", rows), title=title, title_align="left", expand=False)


def _shared(model: SavedModel) -> Table:
    rows = _rows()
    if model.warm_up:
        shown = [_warm_up(each) for each in model.warm_up]
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


def _signatures(each: Metagraph) -> Table:
    titles = ("signature", "", "name", "type and shape")
    table = Table(*titles, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    tensors = [
        (name, direction, alias, spec)
        for name, signature in each.signatures.items()
        for direction, specs in (("in", signature.inputs), ("out", signature.outputs))
        for alias, spec in specs.items()
    ]
    before = None
    for name, direction, alias, spec in tensors[:_TENSORS_SHOWN]:
        shown = "" if name == before else name
        table.add_row(_plain(shown), direction, _plain(alias), _plain(str(spec)))
        before = name
    _add_more(table, len(tensors) - _TENSORS_SHOWN)
    return table


def _ops(counts: Mapping[str, int]) -> Text:
    ordered = list(sort_by_count(counts).items())
    text = ", ".join(f"{op} {count}" for op, count in ordered[:_OPS_SHOWN])
    more = len(ordered) - _OPS_SHOWN
    total = sum(counts.values())
    shown = f"{total} op{'' if total == 1 else 's'}{': ' if text else ''}{text}"
    return _plain(f"{shown} and {more} other type{'' if more == 1 else 's'}" if more > 0 else shown)


def _batch(each: BatchFunction) -> str:
    sizes = ", ".join(str(size) for size in each.allowed_batch_sizes[:_TENSORS_SHOWN])
    return (
        f"{each.function}: up to {each.max_batch_size} rows, "
        f"{f'padded to {sizes}' if sizes else 'not padded'}; "
        f"waits {each.batch_timeout_micros / 1000:g} ms; "
        f"{each.num_batch_threads} at once, {each.max_enqueued_batches} in the queue"
    )


def _variables(variables: Iterable[DeclaredVariable]) -> str:
    ordered = sorted(variables, key=lambda each: -(each.bytes or 0))
    total = sum(each.bytes or 0 for each in ordered)
    unknown = sum(each.bytes is None for each in ordered)
    largest = ", ".join(
        f"{each.name} {TensorSpec(each.name, each.dtype, each.shape)} "
        f"{'of unknown size' if each.bytes is None else _bytes(each.bytes)}"
        for each in ordered[:_VARIABLES_SHOWN]
    )
    size = f"{_bytes(total)}{f' and {unknown} of unknown size' if unknown else ''}"
    which = "the largest: " if len(ordered) > _VARIABLES_SHOWN else ""
    return f"{len(ordered)}, {size}; {which}{largest}"


def _warm_up(each: WarmUpRecord) -> str:
    inputs = ", ".join(
        f"{alias} {spec}" for alias, spec in list(each.inputs.items())[:_NAMES_SHOWN]
    )
    return f"{each.kind} {each.signature_name} ({inputs})"


def _some(names: Iterable[str], separator: str = ", ") -> Text:
    names = list(names)
    shown = Text(separator).join(_plain(name) for name in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return shown.append(f" and {more} more") if more > 0 else shown


def _number(things: list[str], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _plain(text: str, style: str = "") -> Text:
    """A text as it is: no markup, nothing that steers a terminal, and of bounded length."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}..."
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return Text(shown, style)


def _bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"
