"""`tpuserve inspect`."""

import json
from pathlib import Path

import click

from tpuserve import description, metagraph


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def inspect(directory: tuple[Path, ...], as_json: bool) -> None:
    """Show what a SavedModel holds, without loading it or importing TensorFlow.

    DIRECTORY holds a saved_model.pb: a version directory such as /models/half/1. Of several, each
    is shown; as JSON, one object a directory.
    """
    for found in [metagraph.read(each) for each in directory]:
        if as_json:
            click.echo(json.dumps(description.as_data(found), indent=2))
        else:
            description.print_tables(found)
