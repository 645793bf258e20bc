"""The command `tpuserve migrate`."""

from pathlib import Path

import click


@click.command()
@click.argument(
    "scripts",
    metavar="SCRIPT...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
)
@click.option(
    "--only-this-file",
    is_flag=True,
    help="Leave out the modules beside a script that it imports.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def migrate(scripts: tuple[Path, ...], only_this_file: bool, as_json: bool) -> int:
    """Say what of an old program runs here, and with which command.

    Reads it, and the modules beside it that it imports, and runs nothing. Lists the names of
    TensorFlow that work as they are, those that tpuserve supplies, and those that are gone, with
    what replaces them; then the command that runs the program. Nothing is changed.

    SCRIPT is a Python file, or a directory whose programs are all read.

    The exit status is 0 if everything that is named is there, and 1 if something is gone, not
    known or not installed, or if a file cannot be read.
    """
    from trainer.migration import json_report, report
    from trainer.migration.program import scripts as programs

    found = [
        report.of(program, followed=not only_this_file)
        for each in scripts
        for program in programs.at(each)
    ]
    if as_json:
        click.echo(json_report.text(found))
    else:
        # The library for text takes longer to import than JSON takes to print.
        from trainer.migration import text_report

        text_report.print_all(found)
    return 0 if all(each.runs for each in found) else 1
