"""Implements `tpuserve doctor`, which checks whether this machine can run TPU graphs."""

import json

import click

from tpuserve.commands.common_options import json_option
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve doctor
  tpuserve doctor --json
  TPUSERVE_PJRT_PLATFORM=cpu tpuserve doctor
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up on the all-reduce after this time. The start of a TPU can take a minute.",
)
@json_option
@click.pass_context
def doctor(context: click.Context, timeout_s: float, as_json: bool) -> None:
    """Check whether this machine can run TPU graphs.

    The output lists the TPU and its chips, the versions of the packages, the environment variables
    that concern TPUs, and the processes that use the TPU. If no other process uses the TPU, a small
    all-reduce runs on all of its devices. With TPUSERVE_PJRT_PLATFORM=cpu the all-reduce runs on
    jax's CPU devices. Each finding that is not ok says what to do.

    On a machine without a TPU the output says so, and lists what can be tried.

    The exit status is 1 if a finding is a problem, else 0: a machine without a TPU is no problem.
    """
    from tpuserve.diagnosis import rendering
    from tpuserve.diagnosis.doctor import diagnose

    with exit_on_sigterm():
        diagnosis = diagnose(timeout_s=timeout_s)
    if as_json:
        click.echo(json.dumps(rendering.to_dict(diagnosis), indent=2))
    else:
        rendering.print_findings(diagnosis)
    if not diagnosis.passed:
        context.exit(1)
