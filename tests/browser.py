"""Chromium for tests of pages: without any other host, so that only the server's name resolves."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

REQUIRED = "TPUSERVE_REQUIRE_CHROMIUM"
"""The environment variable with which CI demands that no test of a page is skipped."""
# Give the server another name than localhost, which Swagger UI treats specially.
HOST = "tpuserve.test"
# A page that a loaded machine shows late is no failure.
TIMEOUT_MS = 120_000
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND",
)


@contextmanager
def launch() -> Iterator[Any]:
    """Start headless Chromium, and yield Playwright's browser; skip the test without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        reason = "chromium is not installed. Install it with the package manager of the system."
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Any, **options: Any) -> Iterator[Any]:
    """Open a page, and fail if a script of it fails or it asks another host for anything.

    Args:
      browser: Playwright's browser.
      options: the options of Playwright's context, such as `color_scheme`.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((f"http://{HOST}:", "data:"))
            else problems.append(request.url)
        ),
    )
    page.on(
        "console",
        lambda message: (
            problems.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )
    try:
        yield page
    finally:
        context.close()
    assert not problems
