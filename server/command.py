"""The command `tpuserve serve`."""

from pathlib import Path

import click

from server import settings as defaults


@click.command()
@click.option(
    "--port",
    type=int,
    default=defaults.DEFAULT_PORT,
    show_default=True,
    help="Port for gRPC; 0 turns it off.",
)
@click.option(
    "--rest_api_port",
    type=int,
    default=defaults.DEFAULT_REST_API_PORT,
    show_default=True,
    help="Port for REST; 0 turns it off, which is TensorFlow Serving's default.",
)
@click.option(
    "--host",
    default=defaults.DEFAULT_HOST,
    show_default=True,
    help="IPv4 address to listen on; 127.0.0.1 for this machine only.",
)
@click.option(
    "--model_name",
    default=defaults.DEFAULT_MODEL_NAME,
    show_default=True,
    help="Name that clients use for the model.",
)
@click.option(
    "--model_base_path",
    default="",
    metavar="DIRECTORY",
    help="Absolute path of the directory with one numbered directory a version; the highest "
    "number is served.",
)
@click.option(
    "--saved_model_tags",
    default="",
    metavar="TAG,TAG",
    help="Exact tag set of the metagraph to serve, as serve,tpu. Unset, it is serve,tpu on a "
    "machine with a TPU, real or emulated, and serve on any other.",
)
def serve(
    port: int,
    rest_api_port: int,
    host: str,
    model_name: str,
    model_base_path: str,
    saved_model_tags: str,
) -> None:
    """Serve a SavedModel over TensorFlow Serving's REST and gRPC.

    Flags mean what they mean to tensorflow_model_server. SIGTERM or Ctrl-C stops the server once
    the requests in flight are answered.
    """
    # Imported here so that the other commands' help does not wait for web frameworks.
    from server import app
    from tpuserve import tags

    app.run(
        defaults.Settings(
            model_base_path=Path(model_base_path),
            model_name=model_name,
            port=port,
            rest_api_port=rest_api_port,
            host=host,
            saved_model_tags=tags.parse(saved_model_tags) or None,
        )
    )
