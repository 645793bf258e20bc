"""The command `tpuserve run`."""

import os

import click

from tpuserve import devices
from tpuserve.errors import InvalidSetting


def _emulated(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            devices.find_tpu_system({devices.EMULATION_VARIABLE: value})
        except InvalidSetting:
            raise click.BadParameter(
                f"{value!r} is not a valid topology. Give a number of cores (8), HOSTSxCORES "
                f"(2x4), or 0 to disable the emulation."
            ) from None
    return value


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--emulate-tpu",
    metavar="CORES",
    callback=_emulated,
    help="Emulate a TPU on this machine's CPU: 8 for 8 cores, 2x4 for two hosts with 4 cores each.",
)
@click.option(
    "--tf1/--no-tf1",
    default=None,
    help="Give the program TensorFlow 1, names and behaviour, or not; by default as its source "
    "asks for it.",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as in python.")
@click.argument("script")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(
    emulate_tpu: str | None, tf1: bool | None, module: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """Run a program of the TPUEstimator era as it is.

    tf.estimator, tf.contrib.tpu and what else such programs name are there, on today's TensorFlow.
    Everything after SCRIPT is the program's own, as are its output and its exit status.
    """
    import trainer.compat.launch as launch
    import trainer.compat.source.program as program

    if emulate_tpu is not None:
        os.environ[devices.EMULATION_VARIABLE] = emulate_tpu
    found = program.program_from_module(script) if module else program.program_from_script(script)
    launch.run(found, list(arguments), tf1=tf1)
