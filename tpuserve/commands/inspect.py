"""`tpuserve inspect`."""

import json
from pathlib import Path

import click

from tpuserve.commands.path_type import SavedModelPath
from tpuserve.errors import DamagedSavedModel
from tpuserve.saved_model import metagraph, summary


@click.command()
@click.argument("directory", type=SavedModelPath(), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def inspect(directory: tuple[Path, ...], as_json: bool) -> None:
    """Show what a SavedModel holds, without loading it or importing TensorFlow.

    DIRECTORY holds a saved_model.pb: a version directory such as /models/half/1. Of several, each
    is shown; as JSON, one object a directory.

    For every metagraph: its tags, the signatures with names, types and shapes, which ops run on
    the TPU and which on the host, batch functions, variables, assets, and the TensorFlow that
    wrote it. For the whole: the warm-up requests and other extra files.

    The exit status is 1 if the file is damaged, and also if it can be shown but not be served:
    variables or assets are missing, or the warm-up file is damaged. What is wrong is then the
    last line, and in JSON the field "problems".
    """
    models = [metagraph.read_saved_model(each) for each in directory]
    for found in models:
        if as_json:
            click.echo(json.dumps(summary.saved_model_to_dict(found), indent=2))
        else:
            # The library for tables takes longer to import than JSON takes to print.
            from tpuserve.saved_model import summary_tables

            summary_tables.print_summary(found)
    problems = [each for found in models for each in found.problems]
    if problems:
        raise DamagedSavedModel(" ".join(problems))
