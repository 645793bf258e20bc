"""Implements `tpuserve inspect`, which shows the contents of a SavedModel without loading it."""

import json
from pathlib import Path

import click

from tpuserve.commands.common_options import json_option
from tpuserve.commands.path_type import SavedModelPath
from tpuserve.errors import DamagedSavedModel
from tpuserve.saved_model import metagraph, summary

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve inspect /models/half/1
  tpuserve inspect --json /models/half/*
"""


@click.command(epilog=_EXAMPLES)
@click.argument("directory", type=SavedModelPath(), nargs=-1, required=True)
@json_option
def inspect(directory: tuple[Path, ...], as_json: bool) -> None:
    """Show the contents of a SavedModel without loading it.

    DIRECTORY holds a saved_model.pb, such as /models/half/1, or is a base path, such as
    /models/half, whose newest version is meant. Several directories may be given; with --json the
    output is one object for each.

    For each metagraph the output lists the tags, the signatures with names, types and shapes, the
    ops that run on the TPU and on the host, batch functions, variables, assets, and the version of
    TensorFlow that wrote it. For the whole SavedModel it lists the warm-up records and other extra
    files.

    The exit status is 1 if the file is damaged or cannot be served: variables or assets are
    missing, or the warm-up file is damaged. The last line then names the problems; with --json
    they are in the field "problems".
    """
    models = [metagraph.read_saved_model(path) for path in directory]
    for model in models:
        if as_json:
            click.echo(json.dumps(summary.saved_model_to_dict(model), indent=2))
        else:
            # Import the module for tables only when tables are printed: it imports the library
            # rich, which takes longer than printing JSON.
            from tpuserve.saved_model import summary_tables

            summary_tables.print_summary(model)
    problems = [problem for model in models for problem in model.problems]
    if problems:
        raise DamagedSavedModel(" ".join(problems))
