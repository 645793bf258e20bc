"""Reports as text: a line for each name, and at the end the command that runs the program."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from trainer.migration.findings import Finding
from trainer.migration.names.classification import Kind
from trainer.migration.report import Report

_TITLES = {
    Kind.WORKS: ("Works as it is", "green"),
    Kind.SUPPLIED: ("Supplied by tpuserve", "cyan"),
    Kind.GONE: ("Gone", "red"),
    Kind.UNKNOWN: ("Not known", "magenta"),
    Kind.MISSING: ("Not installed", "yellow"),
}


def print_all(reports: Sequence[Report]) -> None:
    """Prints the reports, in colours on a terminal; elsewhere no line is broken or cut."""
    console = Console(highlight=False)
    for index, report in enumerate(reports):
        if index:
            console.print()
        for line in lines(report):
            console.print(line, soft_wrap=True)


def lines(report: Report) -> Iterator[Text]:
    """The lines that show a report."""
    yield Text(_head(report), style="bold")
    for kind, (title, color) in _TITLES.items():
        found = report.of_kind(kind)
        if found:
            yield Text()
            yield Text(f"{title}: {len(found)} {'name' if len(found) == 1 else 'names'}", color)
            yield from _table(found)
    if report.problems:
        yield Text()
        yield Text(f"Not read: {len(report.problems)}", "red")
        for problem in report.problems:
            yield Text(f"  {problem}")
    yield Text()
    yield from _end(report)


def _head(report: Report) -> str:
    others = len(report.files) - 1
    more = f" and {others} {'module' if others == 1 else 'modules'} beside it" if others else ""
    return f"{report.script}{more}"


def _table(found: Sequence[Finding]) -> Iterator[Text]:
    places = [f"{each.file}:{', '.join(map(str, each.lines))}" for each in found]
    # What a column is as wide as; a name on very many lines does not push all others aside.
    width = min(max(map(len, places)), 40)
    names = max(len(each.written) for each in found)
    for place, each in zip(places, found, strict=True):
        says = _says(each)
        name = each.written.ljust(names) if says else each.written
        yield Text.assemble(
            "  ", (place.ljust(width), "dim"), "  ", name, f"  {says}" if says else ""
        )


def _says(finding: Finding) -> str:
    if finding.kind is Kind.SUPPLIED and finding.says:
        return f"is {finding.says}"
    return finding.says


def _end(report: Report) -> Iterator[Text]:
    if report.tf1:
        yield Text(f"It gets TensorFlow 1's names and behaviour: {report.tf1}.")
    if report.command is None:
        return
    stops = len([each for each in report.findings if not each.kind.runs]) + len(report.problems)
    if stops:
        yield Text(
            f"{stops} of these {'stops' if stops == 1 else 'stop'} it. Once changed, run it with"
        )
    else:
        yield Text("Run it with")
    yield Text(f"  {report.command}", style="bold")
