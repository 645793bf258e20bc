"""The command `tpuserve migrate`, which reports which TensorFlow names of an old program work."""

from pathlib import Path

import click

# The character \b makes click keep the line breaks of the examples in the help text.
_EXAMPLES = """\b
Examples:
  tpuserve migrate mnist.py
  tpuserve migrate mnist.py -- --use_tpu=False
  tpuserve migrate --json models/ > report.json
"""


class _WithArgumentsOfProgram(click.Command):
    """A command whose line ends with `--` and the arguments of the program that it is about."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments of this command, and keep those after `--` as they are."""
        end = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(context, args[:end])
        context.params["arguments"] = tuple(args[end + 1 :])
        return rest


@click.command(cls=_WithArgumentsOfProgram, epilog=_EXAMPLES)
@click.argument(
    "scripts",
    metavar="SCRIPT... [-- ARGUMENT...]",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
)
@click.option(
    "--only-this-file",
    is_flag=True,
    help="Do not read the modules that the script imports.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def migrate(
    scripts: tuple[Path, ...], only_this_file: bool, as_json: bool, arguments: tuple[str, ...]
) -> int:
    """Report which TensorFlow names of an old program work.

    Reads the script and the modules beside the script that it imports. Runs nothing and changes
    nothing. Lists the TensorFlow names that work unchanged, the names that tpuserve supplies, the
    names that no longer exist, with their replacements, and the command that runs the program.

    SCRIPT is a Python file, or a directory of programs. ARGUMENT is an argument of the program: a
    name in a branch that the program does not reach with these arguments does not count.

    The exit status is 0 if every name exists, and 1 if a name is gone, unknown or not installed, or
    if a file cannot be read.
    """
    from trainer.migration import migration_report, text_report
    from trainer.migration.program.scripts import find_scripts

    reports = [
        migration_report.analyze_program(
            script, follow_imports=not only_this_file, arguments=arguments
        )
        for path in scripts
        for script in find_scripts(path)
    ]
    if as_json:
        click.echo(text_report.format_reports(reports))
    else:
        # Import text_report only for reports as text, because it imports the package rich, which
        # takes longer than printing a report as JSON.
        from trainer.migration import text_report

        text_report.print_reports(reports)
    return 0 if all(program.runs for program in reports) else 1
