"""The console works in Chromium: it shows the models and their load, and tries every signature."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import browser as browsers
from tests.browser import HOST
from tests.server.frontends.rest.console import appearance, exports, pictures
from tests.server.frontends.rest.console.console_server import ConsoleServer
from tests.server.frontends.rest.console.screenshots import take_screenshots
from tests.server.frontends.rest.wire import ask

pytestmark = pytest.mark.slow

KEY = "sesame"
DOCUMENTS = Path(__file__).parents[5] / "docs"
# The first bytes of a PNG file, which have its width and height.
PNG_HEADER = 24
PREDICT = "/v1/models/forms:predict"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.launch() as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with browsers.open_page(browser) as page:
        yield page


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base_path = tmp_path_factory.mktemp("models") / "forms"
    exports.export(base_path / "1")
    damaged = base_path / "2"
    damaged.mkdir()
    (damaged / "saved_model.pb").write_bytes(b"no model")
    return base_path


@pytest.fixture(scope="module")
def port(base_path: Path) -> Iterator[int]:
    """Serve the model in this process, and yield the REST port."""
    with start_console(base_path) as server:
        yield server.port


def start_console(base_path: Path, **settings: Any) -> ConsoleServer:
    return ConsoleServer(base_path.parent, {"forms": base_path}, **settings)


def open_form(page: Any, port: int, signature: str) -> None:
    page.goto(f"http://{HOST}:{port}/")
    page.get_by_role("button", name="Try forms, version 1").click()
    page.get_by_label("Signature").select_option(signature)


def submit(page: Any) -> str:
    """Send the form, and return the text of the answer or of the error."""
    page.get_by_role("button", name="Send").click()
    answer = page.locator("#answer-text:visible, #trial-error:not(:empty)")
    return re.sub(r"\s+", "", answer.first.text_content())


def test_page_shows_states_and_follows_the_load(page: Any, port: int) -> None:
    page.goto(f"http://{HOST}:{port}/")
    rows = page.locator("#models tbody tr")
    failed, available = rows.nth(0), rows.nth(1)
    failed.get_by_text("FAILED").wait_for()
    assert "saved_model.pb" in failed.locator(".error-text").text_content()
    available.get_by_text("AVAILABLE").wait_for()
    available.get_by_text("{serve} on CPU (by default; no TPU found)").wait_for()
    assert page.locator("#readiness").text_content() == "ready"

    address = ("127.0.0.1", port)
    for _ in range(5):
        assert ask(address, "POST", PREDICT, b'{"instances": [1, 2]}')[0].status == 200
    assert ask(address, "POST", PREDICT, b'{"instances": ["a"]}')[0].status == 400
    # The next polls show the requests, without a reload of the page.
    page.locator("#models dd.p99", has_text="ms").wait_for()
    page.locator("#errors td", has_text="not of expected type: float").first.wait_for()
    runs = int(available.locator("td").nth(3).text_content())
    assert runs >= 5


@pytest.mark.parametrize("signature", ["age_next_year", "classify", "serving_default"])
def test_prefilled_forms_succeed(page: Any, port: int, signature: str) -> None:
    open_form(page, port, signature)
    assert re.match(r'{"(outputs|results)"', submit(page))


def test_large_inputs_and_files_are_prefilled_too(page: Any, port: int) -> None:
    open_form(page, port, "photo_size")
    assert submit(page) == '{"outputs":[127]}'
    page.get_by_label("Signature").select_option("picture_height")
    assert submit(page) == '{"outputs":[8]}'


def test_integers_of_64_bits_keep_all_digits(page: Any, port: int) -> None:
    open_form(page, port, "next_integer")
    page.get_by_label("Value as JSON").fill("[9007199254740993]")
    assert submit(page) == '{"outputs":[9007199254740994]}'


def test_form_of_a_tf_example_sends_its_features(page: Any, port: int) -> None:
    open_form(page, port, "age_next_year")
    page.get_by_label("age (int64, 1 value)").fill("-9007199254740993")
    page.get_by_label("colours (bytes, any number of values)").fill('["grün", "red"]')
    page.get_by_label("weights (float, 2 values)").fill("[1, 0.5]")
    answer = '{"outputs":{"age":[-9007199254740992],"colour":["grün"],"weight":[1.5]}}'
    assert submit(page) == answer
    page.get_by_label("Signature").select_option("classify")
    page.get_by_label("weights (float, 2 values)").fill("[1, 3]")
    assert submit(page) == '{"results":[[["light",1.0],["heavy",3.0]]]}'


def test_picture_is_scaled_to_what_the_model_takes(page: Any, port: int) -> None:
    open_form(page, port, "mean_colour")
    page.get_by_label("Picture", exact=True).set_input_files(pictures.one_colour(255, 0, 255))
    page.get_by_role("img", name="The picture for image").wait_for()
    assert submit(page) == '{"outputs":[[1.0,0.0,1.0]]}'
    page.get_by_label("Range of the pixels").select_option("-1 to 1")
    assert submit(page) == '{"outputs":[[1.0,-1.0,1.0]]}'
    page.get_by_label("Signature").select_option("photo_size")
    page.get_by_label("Picture", exact=True).set_input_files(pictures.one_colour(10, 20, 30))
    assert submit(page) == '{"outputs":[30]}'
    page.get_by_label("Signature").select_option("picture_height")
    page.get_by_label("Picture", exact=True).set_input_files(
        pictures.one_colour(10, 20, 30, side=24)
    )
    assert submit(page) == '{"outputs":[24]}'


def test_mistakes_get_one_line_that_says_what_to_do(page: Any, port: int) -> None:
    open_form(page, port, "mean_colour")
    text = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"}
    page.get_by_label("Picture", exact=True).set_input_files(text)
    page.get_by_role("button", name="Send").click()
    expected = (
        "image: asked for a picture, found notes.txt (text/plain, 10 bytes), which is none. "
        "Select a PNG, JPEG, GIF or WebP file."
    )
    error = page.locator("#trial-error")
    error.get_by_text(expected, exact=True).wait_for()

    page.get_by_label("Signature").select_option("serving_default")
    for value, message in (
        ("", "x: asked for JSON, found nothing. Enter a value such as 1.5 or [1, 2]."),
        ('["a"]', '400: JSON Value: "a"'),
    ):
        page.get_by_label("Value as JSON").fill(value)
        page.get_by_role("button", name="Send").click()
        error.get_by_text(message).wait_for()
    page.get_by_label("Signature").select_option("age_next_year")
    for label, value, message in (
        ("age (int64, 1 value)", "1.5", "age: asked for integers of 64 bits, found 1.5."),
        ("age (int64, 1 value)", "[1, 2]", "age: asked for 1 values, found 2. Enter 1."),
        ("weights (float, 2 values)", '["a", 1]', 'weights: asked for numbers, found "a".'),
    ):
        field = page.get_by_label(label)
        before = field.input_value()
        field.fill(value)
        page.get_by_role("button", name="Send").click()
        error.get_by_text(message).wait_for()
        field.fill(before)
    assert page.locator("#answer").is_hidden()


def test_page_can_be_used_with_the_keyboard(page: Any, port: int) -> None:
    page.goto(f"http://{HOST}:{port}/")
    button = page.get_by_role("button", name="Try forms, version 1")
    button.focus()
    page.keyboard.press("Enter")
    page.locator("#signature:focus").wait_for()
    assert (
        page.locator(":is(input, select, textarea):visible").count()
        == page.locator("label:visible").count()
    )
    page.get_by_label("Value as JSON").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#answer-title", has_text="200").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(browser: Any, port: int, scheme: str) -> None:
    with browsers.open_page(browser, color_scheme=scheme) as page:
        open_form(page, port, "serving_default")
        submit(page)
        contrasts = page.evaluate(_CONTRASTS)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert len(contrasts) > 20
    assert min(contrasts.values()) >= 4.5, contrasts
    assert overflow <= 0


def test_page_asks_for_the_key_and_sends_it(browser: Any, base_path: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    keyed = start_console(base_path, api_keys_file=str(tmp_path / "keys"))
    with keyed, browsers.open_page(browser) as page:
        page.goto(f"http://{HOST}:{keyed.port}/")
        field = page.get_by_label("This server requires an API key.")
        field.fill("other")
        page.keyboard.press("Enter")
        page.get_by_text("The server does not accept this key.").wait_for()
        assert page.locator("#models-section").is_hidden()
        field.fill(KEY)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Try forms, version 1").click()
        page.get_by_label("Value as JSON").fill("[1, 2, 5]")
        assert submit(page) == '{"outputs":[2.5,3.0,4.5]}'
        page.get_by_text("As a command").click()
        command = page.locator("#command-text").text_content()
        assert command.startswith('curl -H "Authorization: Bearer $KEY" -d ')
        assert KEY not in command


def test_command_with_quotes_runs_in_a_shell(browser: Any, base_path: Path) -> None:
    name = "it's $(touch x)"
    server = ConsoleServer(base_path.parent, {name: base_path})
    with server, browsers.open_page(browser) as page:
        page.goto(f"http://{HOST}:{server.port}/")
        page.get_by_role("button", name=f"Try {name}, version 1").click()
        page.get_by_label("Signature").select_option("age_next_year")
        page.get_by_label("colours (bytes, any number of values)").fill('["it\'s `red`"]')
        answer = submit(page)
        assert "it's`red`" in answer
        page.get_by_text("As a command").click()
        command = page.locator("#command-text").text_content()
        # The name of the server exists in the browser alone.
        curl = f"curl -sS --resolve {HOST}:{server.port}:127.0.0.1"
        command = command.replace("curl", curl, 1)
        finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert (re.sub(r"\s+", "", finished.stdout), finished.stderr) == (answer, "")


def test_page_tells_that_the_server_has_gone(browser: Any, base_path: Path) -> None:
    with browsers.open_page(browser) as page:
        with start_console(base_path) as server:
            page.goto(f"http://{HOST}:{server.port}/")
            page.get_by_text("AVAILABLE").wait_for()
        page.get_by_role("alert").get_by_text("The server does not answer").wait_for()


def test_documents_show_the_page_as_it_is(browser: Any, tmp_path: Path) -> None:
    take_screenshots(browser, tmp_path, load_seconds=0)
    for name in ("console.png", "console_form.png"):
        assert f"(pictures/{name})" in (DOCUMENTS / "operations.md").read_text()
        picture, screenshot = DOCUMENTS / "pictures" / name, tmp_path / name
        assert picture.read_bytes()[:PNG_HEADER] == screenshot.read_bytes()[:PNG_HEADER]
        # tests/server/frontends/rest/console/screenshots.py says how to take the pictures anew.
        assert appearance.read_description(picture) == appearance.read_description(screenshot)


# The contrast of each visible text with its background, by the text: WCAG 2's formula. The colours
# of backgrounds that shine through are mixed.
_CONTRASTS = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((value) => {
      value /= 255;
      return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const background = (element) => {
    if (element === null) return [255, 255, 255];
    const [r, g, b, a] = parse(getComputedStyle(element).backgroundColor);
    if (a === 1) return [r, g, b];
    const below = background(element.parentElement);
    return [r, g, b].map((value, index) => value * a + below[index] * (1 - a));
  };
  const contrasts = {};
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
      .map((node) => node.textContent.trim()).join("");
    if (!text || !element.checkVisibility()) continue;
    const values = [parse(getComputedStyle(element).color), background(element)].map(luminance);
    values.sort((one, other) => other - one);
    contrasts[text] = (values[0] + 0.05) / (values[1] + 0.05);
  }
  return contrasts;
}"""
