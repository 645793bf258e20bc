"""Shows a progress bar in the terminal for commands that run for more than a few seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar on standard error, if that is a terminal, inside a with block.

    Yields:
      A function that updates the bar. It takes the number of finished steps, the number of all
      steps (0 if unknown), and a description of the current step.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total, step: None
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: int, total: int, step: str) -> None:
            bar.update(task, completed=done, total=total or None, description=step)

        yield update
