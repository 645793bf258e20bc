"""The command `tpuserve run`, which runs a program that was written for TPUEstimator."""

import os

import click

from tpuserve import devices
from tpuserve.errors import InvalidSetting
from trainer.config import host_addresses

_EXAMPLES = """\b
Examples:
  tpuserve run --emulate-tpu 8 train.py --steps=100
  tpuserve run --processes 2 --cores 4 train.py --steps=100
  tpuserve run --hosts 10.0.0.1,10.0.0.2 --host-index 1 train.py --steps=100
"""


def _validate_topology(
    context: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    if value is not None:
        try:
            devices.find_tpu_system({devices.EMULATION_VARIABLE: value})
        except InvalidSetting:
            raise click.BadParameter(
                f"{value!r} is not a valid topology. Give a number of cores (8), HOSTSxCORES "
                f"(2x4), or 0 to disable the emulation."
            ) from None
    return value


@click.command(epilog=_EXAMPLES, context_settings={"allow_interspersed_args": False})
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
    "--as_tf1",
    "tf1_packages",
    metavar="PACKAGE",
    multiple=True,
    help="Give an installed package the names of TensorFlow 1. Packages that use names that only "
    "TensorFlow 1 has get them without this option. May be given several times.",
)
@click.option(
    "-m", "--module", is_flag=True, help="Run SCRIPT as the name of a module, as `python -m` does."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="PROCESSES",
    help="Run SCRIPT in so many processes on this machine, as if each ran on a host of its own, "
    "with --cores of JAX's CPU devices each.",
)
@click.option(
    "--cores",
    type=click.IntRange(min=1),
    metavar="CORES",
    help="Number of devices of each process of --processes.  [default: 1]",
)
@click.option(
    "--hosts",
    metavar="HOST,...",
    help="Train on several hosts: the addresses of all hosts, in the same order on each. Start the "
    "command on every host. Host 0 listens on a port, 8490 unless its address has another.",
)
@click.option(
    "--host-index",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Number of this host in --hosts, from 0.",
)
@click.argument("script")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(
    emulate_tpu: str | None,
    tf1: bool | None,
    tf1_packages: tuple[str, ...],
    module: bool,
    processes: int | None,
    cores: int | None,
    hosts: str | None,
    host_index: int | None,
    script: str,
    arguments: tuple[str, ...],
) -> int | None:
    """Run a program that was written for TPUEstimator, unchanged.

    tf.estimator, tf.contrib.tpu and the other names that such programs use are available on today's
    TensorFlow. Everything after SCRIPT is passed to the program. The output and the exit status are
    those of the program.

    With --processes, the standard output is that of process 0. All other output goes to standard
    error, and each line starts with the number of its process.
    """
    _check_hosts(emulate_tpu, processes, cores, hosts, host_index)
    if processes is not None:
        options = [] if tf1 is None else ["--tf1" if tf1 else "--no-tf1"]
        options += [f"--as_tf1={package}" for package in tf1_packages]
        options += ["--module"] if module else []
        # Import host_processes only if --processes is given, because nothing else needs the module.
        import trainer.compat.host_processes as host_processes

        environments = host_processes.make_environments(processes, cores or 1)
        return host_processes.run_processes(environments, [*options, script, *arguments])
    if hosts is not None:
        os.environ[host_addresses.HOSTS_VARIABLE] = hosts
        os.environ[host_addresses.HOST_INDEX_VARIABLE] = str(host_index)
        host_addresses.read_host_addresses(os.environ)

    import trainer.compat.launch as launch
    import trainer.compat.source.user_program as programs

    if emulate_tpu is not None:
        os.environ[devices.EMULATION_VARIABLE] = emulate_tpu
    if module:
        program = programs.program_from_module(script)
    else:
        program = programs.program_from_script(script)
    launch.run_program(
        program,
        list(arguments),
        tf1=tf1,
        tf1_packages=tf1_packages,
        shows_tracebacks=bool(click.get_current_context().find_root().params.get("debug")),
    )


def _check_hosts(
    emulate_tpu: str | None,
    processes: int | None,
    cores: int | None,
    hosts: str | None,
    host_index: int | None,
) -> None:
    if (hosts is None) != (host_index is None):
        raise click.UsageError(
            "--hosts and --host-index were not given together. Give both: the addresses of all "
            "hosts, and the number of this one."
        )
    if cores is not None and processes is None:
        raise click.UsageError("--cores was given without --processes. Give both.")
    options = {"--emulate-tpu": emulate_tpu, "--processes": processes, "--hosts": hosts}
    names = [name for name, value in options.items() if value is not None]
    if len(names) > 1:
        raise click.UsageError(
            f"{' and '.join(names)} were given. Give one of them: an emulated TPU is in one "
            f"process, and several processes train on --cores of JAX's CPU devices each."
        )
