"""The page /docs works in Chromium without any other host: only the server's name resolves.

Needs the programs chromium and chromedriver and the package selenium; skipped without them.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from server.servables.servable import Model
from tests.server.aspiring import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.v1.test_classify_regress import definition, spec
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.saved_model.signature import Signature

webdriver: Any = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
ui: Any = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("chromium or chromedriver is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow

# Give the server another name than localhost, which Swagger UI treats specially.
HOST = "tpuserve.test"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--window-size=1200,2400",
    f"--host-resolver-rules=MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND",
)
KEY = "sesame"
PREDICT = "/v1/models/half:predict"
ANSWER = {"predictions": [2.5, 3.0, 4.5]}


class HalfModel(FakeModel):
    """Half-plus-two with its SignatureDef messages."""

    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            {"x": spec("float32", "x", None)}, {"y": spec("float32", "y", None)}
        )
    }
    signature_defs: Mapping[str, Any] = {
        name: definition(signature) for name, signature in signatures.items()
    }


class ImageModel(HalfModel):
    """Has a signature whose input is a batch of images."""

    signature_defs: Mapping[str, Any] = {
        "serving_default": definition(
            Signature(
                {"x": spec("float32", "x", None, 224, 224, 3)}, {"y": spec("float32", "y", None)}
            )
        )
    }


class Page:
    """The page in a browser. CSS selectors find its elements."""

    def __init__(self, browser: Any, address: Address) -> None:
        self.browser = browser
        self.browser.get(f"http://{HOST}:{address[1]}/docs")

    def wait(self, until: Callable[[Any], Any]) -> Any:
        """Call a function with the browser until its result is true, and return the result."""
        return ui.WebDriverWait(self.browser, 60).until(until)

    def find(self, selector: str) -> Any:
        """Wait for a visible element that matches a CSS selector, and return the first."""
        find_all = lambda browser: browser.find_elements("css selector", selector)  # noqa: E731
        return self.wait(
            lambda browser: next((item for item in find_all(browser) if item.is_displayed()), None)
        )

    def give(self, key: str) -> None:
        self.find("#key").clear()
        self.find("#key").send_keys(key)
        self.find("#key-form button").click()

    def operations(self) -> set[str]:
        self.find(".opblock")
        elements = self.browser.find_elements("css selector", ".opblock [data-path]")
        return {element.get_attribute("data-path") for element in elements}

    def open(self, path: str) -> str:
        """Open an operation's form "Try it out"; return the request body that the page proposes."""
        self.find(f'[data-path="{path}"]').click()
        self.find(".try-out__btn").click()
        return str(self.find("textarea.body-param__text").get_attribute("value"))

    def execute(self, body: str | None = None) -> tuple[int, Any]:
        """Send the request body in the form, or `body`; return the response's status and body."""
        if body is not None:
            self.find("textarea.body-param__text").send_keys("\ue009a\ue000", body)  # control+a
        if self.browser.find_elements("css selector", ".btn-clear"):
            self.find(".btn-clear").click()
        self.find(".execute").click()
        status = self.find(".live-responses-table .response .response-col_status").text
        answer = self.find(".live-responses-table .response .highlight-code code").text
        return int(status.split()[0]), json.loads(answer)

    def hosts(self) -> set[str | None]:
        """Return the hosts that the browser has sent requests to since the last call."""
        sent = (
            json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")
        )
        urls = [
            urlsplit(event["params"]["request"]["url"])
            for event in sent
            if event["method"] == "Network.requestWillBeSent"
        ]
        return {url.hostname for url in urls if url.scheme != "data"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def start(serve: Serve) -> Callable[..., Address]:
    def start(load: Callable[[Path], Model], keys: ApiKeys | None = None) -> Address:
        manager, admission = Manager(load), AdmissionController()
        aspire(manager, "half", {3: Path("/models/half/3")})
        admission.mark_ready()
        return serve(build_rest_app(DataPlane(manager), keys=keys, admission=admission))

    return start


def test_page_shows_and_tries_the_served_models_without_other_servers(
    browser: Any, start: Callable[..., Address]
) -> None:
    address = start(lambda directory: HalfModel())
    page = Page(browser, address)
    assert page.operations() == set(json.loads(ask(address, "GET", "/openapi.json")[1])["paths"])
    assert not browser.find_element("css selector", "#key-form").is_displayed()
    assert json.loads(page.open(PREDICT))["instances"] == [0]
    assert page.execute() == (200, {"predictions": [2.0]})
    assert page.execute('{"instances": [1, 2, 5]}') == (200, ANSWER)
    assert page.hosts() == {HOST}


def test_page_asks_for_the_key_and_sends_it(
    browser: Any, start: Callable[..., Address], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    page = Page(browser, start(lambda directory: HalfModel(), ApiKeys(file)))
    page.give("other")
    page.wait(lambda _: "does not accept this key" in page.find("#refusal").text)
    page.give("ключ")  # a key that no header can contain
    page.wait(lambda _: "ISO-8859-1" in page.find("#refusal").text)
    page.give(KEY)
    assert PREDICT in page.operations()
    assert browser.find_element("css selector", "#refusal").text == ""
    page.open(PREDICT)
    assert page.execute('{"instances": [1, 2, 5]}') == (200, ANSWER)

    page.find(".auth-wrapper .authorize").click()
    page.find(".auth-container .btn").click()  # log out
    page.find(".btn-done").click()
    status, answer = page.execute()
    assert status == 401
    assert "API key" in answer["error"]

    page.find(".auth-wrapper .authorize").click()
    page.find(".auth-container input").send_keys(KEY)
    page.find(".auth-container .authorize").click()
    page.find(".btn-done").click()
    assert page.execute() == (200, ANSWER)
    assert page.hosts() == {HOST}


def test_page_does_not_hang_over_an_image(browser: Any, start: Callable[..., Address]) -> None:
    page = Page(browser, start(lambda directory: ImageModel()))
    assert PREDICT in page.operations()
    assert json.loads(page.open(PREDICT))["instances"] == [[[[0]]]]


def test_page_shows_that_the_document_is_missing(
    browser: Any, start: Callable[..., Address], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    page = Page(browser, start(lambda directory: HalfModel(), ApiKeys(file)))
    page.find("#key")
    browser.set_network_conditions(offline=True, latency=0, throughput=-1)
    try:
        page.give(KEY)
        page.wait(lambda _: "/openapi.json: Failed to fetch" in page.find("#refusal").text)
    finally:
        browser.delete_network_conditions()
