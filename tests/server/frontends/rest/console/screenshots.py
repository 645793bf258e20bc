"""Takes the screenshots of the console that docs/operations.md shows.

    python -m tests.server.frontends.rest.console.screenshots docs/pictures

A server in this process serves half_plus_two and a model with a signature for each kind of form,
while clients send requests. The metadata of each picture describe the page, so that a test notices
when the page has changed. Needs Chromium.
"""

import http.client
import math
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import browser as browsers
from tests import models
from tests.browser import HOST
from tests.server.frontends.rest.console import appearance, exports, pictures
from tests.server.frontends.rest.console.console_server import ConsoleServer

_PREDICT = "/v1/models/half_plus_two:predict"
_BODIES = (b'{"instances": [[1.0], [2.0]]}', b'{"instances": [[5.0]]}')
_INVALID = b'{"instances": ["five"]}'
_CLIENTS = 3
# The number of versions that can be loaded: two of half_plus_two, and one of the model with forms.
_AVAILABLE = 3


def take_screenshots(browser: Any, directory: Path, load_seconds: float = 60) -> None:
    """Write console.png and console_form.png to a directory.

    Args:
      browser: Playwright's browser.
      directory: Where to write the pictures.
      load_seconds: How long to show requests before the first picture is taken.
    """
    with tempfile.TemporaryDirectory() as temporary:
        models_directory = Path(temporary)
        base_paths = _export(models_directory)
        server = ConsoleServer(models_directory, base_paths, enable_batching=True)
        with server, _send_load(server.port):
            with browsers.open_page(browser) as page:
                page.goto(f"http://{HOST}:{server.port}/")
                page.locator("dd.p99", has_text="ms").first.wait_for()
                page.locator("#errors td", has_text="Failed to process element").first.wait_for()
                page.get_by_text("AVAILABLE", exact=True).nth(_AVAILABLE - 1).wait_for()
                page.wait_for_timeout(1000 * load_seconds)
                _take(page, "body", directory / "console.png", models_directory)
            with browsers.open_page(browser, color_scheme="dark") as page:
                page.goto(f"http://{HOST}:{server.port}/")
                page.get_by_role("button", name="Try forms, version 1").click()
                page.get_by_label("Signature").select_option("mean_colour")
                page.get_by_label("Picture", exact=True).set_input_files(pictures.gradient())
                page.get_by_role("button", name="Send").click()
                page.locator("#answer-title", has_text="200").wait_for()
                page.locator("#trial").evaluate("section => section.scrollIntoView()")
                _take(page, "#trial", directory / "console_form.png", models_directory)


def _take(page: Any, selector: str, picture: Path, models_directory: Path) -> None:
    """Write a screenshot of a page, with a description of a part of the page in the metadata."""
    page.screenshot(path=picture)
    appearance.write_description(picture, appearance.describe(page, selector, models_directory))


def _export(directory: Path) -> dict[str, Path]:
    base_paths = {name: directory / name for name in ("half_plus_two", "forms")}
    exported = models.export(models.half_plus_two, directory / "export")
    for version in ("1", "2"):
        shutil.copytree(exported, base_paths["half_plus_two"] / version)
    exports.export(base_paths["forms"] / "1")
    damaged = base_paths["forms"] / "2"
    damaged.mkdir()
    (damaged / "saved_model.pb").write_bytes(b"no model")
    return base_paths


@contextmanager
def _send_load(port: int) -> Iterator[None]:
    """Send requests while the `with` body runs, more and fewer by turns."""
    is_over = threading.Event()

    def send(client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        count = 0
        while not is_over.is_set():
            count += 1
            body = _INVALID if count % 50 == 49 and client == 0 else _BODIES[count % 2]
            connection.request("POST", _PREDICT, body)
            connection.getresponse().read()
            is_over.wait(0.01 + 0.008 * math.sin(count / 100))
        connection.close()

    threads = [threading.Thread(target=send, args=(client,)) for client in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    with browsers.launch() as chromium:
        take_screenshots(chromium, Path(sys.argv[1]))
