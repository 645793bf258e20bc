"""The command `tpuserve run`."""

import os

import click

from tpuserve import devices
from tpuserve.errors import InvalidSetting


def _validate_topology(
    context: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    """Check the value of --emulate-tpu and return it unchanged.

    Raises:
      click.BadParameter: the value is neither a number of cores nor "HOSTSxCORES".
    """
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
    callback=_validate_topology,
    help="Emulate a TPU on this machine's CPU: 8 for 8 cores, 2x4 for two hosts with 4 cores each.",
)
@click.option(
    "--tf1/--no-tf1",
    default=None,
    help="Run the program with the names and the behaviour of TensorFlow 1, or without them. The "
    "default depends on the names that the program's source uses.",
)
@click.option(
    "-m", "--module", is_flag=True, help="Run SCRIPT as the name of a module, as `python -m` does."
)
@click.argument("script")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(
    emulate_tpu: str | None, tf1: bool | None, module: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """Run a program that was written for TPUEstimator, without changes to the program.

    tf.estimator, tf.contrib.tpu and the other names that such programs use are available on today's
    TensorFlow. Everything after SCRIPT is passed to the program. The output and the exit status are
    those of the program.
    """
    import trainer.compat.launch as launch
    import trainer.compat.source.program as programs

    if emulate_tpu is not None:
        os.environ[devices.EMULATION_VARIABLE] = emulate_tpu
    if module:
        program = programs.program_from_module(script)
    else:
        program = programs.program_from_script(script)
    launch.run_program(program, list(arguments), tf1=tf1)
