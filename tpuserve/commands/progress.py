"""A progress bar for commands that take a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function to tell what is done, of how much, and what is being done.

    The bar is on standard error, and only on a terminal; it is gone when the work is done.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int, what: str) -> None:
            # A total of 0 is work that nobody knows the end of.
            bar.update(task, completed=done, total=total or None, description=what)

        yield tell
