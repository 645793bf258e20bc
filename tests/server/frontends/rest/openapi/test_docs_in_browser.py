"""The page /docs works in Chromium without any other host: only the server's name resolves."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.dataplane import DataPlane, SampleRequest
from server.dataplane.results import ExampleFeature, SampleInput
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from server.servables.servable import Array, Model
from tests import browser as browsers
from tests.browser import HOST
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.v1.test_classify_regress import definition, spec
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.saved_model.signature import Signature

pytestmark = pytest.mark.slow

KEY = "sesame"
PREDICT = "/v1/models/half:predict"
INFER = "/v2/models/half/infer"
ANSWER = {"predictions": [2.5, 3.0, 4.5]}
LARGE = 2**53 + 1


class HalfModel(FakeModel):
    """Half-plus-two, and the identity of int64, with their SignatureDef messages."""

    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            {"x": spec("float32", "x", None)}, {"y": spec("float32", "y", None)}
        ),
        "same": Signature({"id": spec("int64", "id", None)}, {"id": spec("int64", "o", None)}),
    }
    signature_defs: Mapping[str, Any] = {
        name: definition(signature) for name, signature in signatures.items()
    }

    def _run(self, signature_name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if signature_name == "same":
            return dict(inputs)
        return super()._run(signature_name, inputs)


class ImageModel(HalfModel):
    """Has a signature whose input is a batch of images."""

    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            {"x": spec("float32", "x", None, 224, 224, 3)}, {"y": spec("float32", "y", None)}
        )
    }
    signature_defs: Mapping[str, Any] = {
        name: definition(signature) for name, signature in signatures.items()
    }


SAMPLES: Mapping[str, Array] = {
    "serving_default": np.array([1, 5], np.float32),
    "same": np.array([LARGE], np.int64),
}


def make_sample(model: Model, directory: Path, name: str) -> SampleRequest:
    ((alias, _),) = model.signatures[name].inputs.items()
    if model.signatures[name].inputs[alias].shape == (None, 224, 224, 3):
        return SampleRequest({alias: SampleInput((1, 224, 224, 3))})
    array = SAMPLES[name]
    return SampleRequest({alias: SampleInput(array.shape, array)})


class Docs:
    """The page of a server, and its operations."""

    def __init__(self, page: Any, address: Address) -> None:
        self.page = page
        page.goto(f"http://{HOST}:{address[1]}/docs")

    def give(self, key: str) -> None:
        self.page.locator("#key").fill(key)
        self.page.locator("#key-form button").click()

    def groups(self) -> list[str]:
        self.page.locator(".opblock").first.wait_for()
        return list(self.page.locator("h3.opblock-tag > a").all_text_contents())

    def operations(self) -> set[str]:
        self.page.locator(".opblock").first.wait_for()
        paths = self.page.locator(".opblock [data-path]")
        return set(paths.evaluate_all("all => all.map((each) => each.dataset.path)"))

    def open(self, path: str) -> Any:
        """Open an operation's form "Try it out"; return the field of the request body."""
        self.page.locator(f'[data-path="{path}"]').click()
        self.page.locator(".try-out__btn").click()
        return self.page.locator("textarea.body-param__text")

    def execute(self) -> tuple[int, str]:
        """Send the request in the form; return the response's status and body."""
        clear = self.page.locator(".btn-clear")
        if clear.count():
            clear.click()
        self.page.locator(".execute").click()
        row = self.page.locator(".live-responses-table .response")
        status = row.locator(".response-col_status").text_content()
        text = row.locator(".highlight-code code").first.text_content()
        return int(re.findall(r"\d+", status)[0]), str(text)

    def answer(self) -> tuple[int, Any]:
        status, text = self.execute()
        return status, json.loads(text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.launch() as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with browsers.open_page(browser) as page:
        yield page


@pytest.fixture
def start(serve: Serve) -> Callable[..., Address]:
    def start(
        load: Callable[[Path], Model], keys: ApiKeys | None = None, has_samples: bool = True
    ) -> Address:
        manager, admission = Manager(load), AdmissionController()
        aspire(manager, "half", {3: Path("/models/half/3")})
        admission.mark_ready()
        dataplane = DataPlane(manager, make_sample=make_sample if has_samples else None)
        settings = Settings(Path("/models"), enable_console=True)
        return serve(build_rest_app(dataplane, settings, keys=keys, admission=admission))

    return start


def test_page_groups_the_operations_by_model(page: Any, start: Callable[..., Address]) -> None:
    address = start(lambda directory: HalfModel())
    docs = Docs(page, address)
    assert [name.strip() for name in docs.groups()] == ["model half", "server"]
    assert docs.operations() == set(json.loads(ask(address, "GET", "/openapi.json")[1])["paths"])
    assert page.locator("#key-form").is_hidden()


def test_proposed_requests_succeed(page: Any, start: Callable[..., Address]) -> None:
    docs = Docs(page, start(lambda directory: HalfModel()))
    field = docs.open(PREDICT)
    assert json.loads(field.input_value()) == {"inputs": {"x": [1.0, 5.0]}}
    assert docs.answer() == (200, {"outputs": [2.5, 4.5]})
    field.fill('{"instances": [1, 2, 5]}')
    assert docs.answer() == (200, ANSWER)


def test_integers_of_64_bits_keep_all_digits(page: Any, start: Callable[..., Address]) -> None:
    docs = Docs(page, start(lambda directory: HalfModel()))
    field = docs.open(PREDICT)
    page.locator(".opblock-section-request-body .examples-select-element").select_option("same")
    page.wait_for_function(
        "text => document.querySelector('textarea.body-param__text').value.includes(text)",
        arg=str(LARGE),
    )
    body = {"signature_name": "same", "inputs": {"id": [LARGE]}}
    assert json.loads(field.input_value()) == body
    status, text = docs.execute()
    assert (status, json.loads(text)) == (200, {"outputs": [LARGE]})
    field.fill(json.dumps({**body, "inputs": {"id": [-LARGE]}}))
    assert docs.answer() == (200, {"outputs": [-LARGE]})


def test_infer_is_proposed_too(page: Any, start: Callable[..., Address]) -> None:
    docs = Docs(page, start(lambda directory: HalfModel()))
    docs.open(INFER)
    status, answer = docs.answer()
    assert (status, answer["outputs"][0]["data"]) == (200, [2.5, 4.5])


def test_page_asks_for_the_key_and_sends_it(
    page: Any, start: Callable[..., Address], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    docs = Docs(page, start(lambda directory: HalfModel(), ApiKeys(file)))
    refusal = page.locator("#refusal")
    docs.give("other")
    refusal.get_by_text("does not accept this key").wait_for()
    docs.give("ключ")  # a key that no header can contain
    refusal.get_by_text("ISO-8859-1").wait_for()
    docs.give(KEY)
    assert PREDICT in docs.operations()
    assert refusal.text_content() == ""
    docs.open(PREDICT).fill('{"instances": [1, 2, 5]}')
    assert docs.answer() == (200, ANSWER)

    authorize = page.locator(".auth-wrapper .authorize").first
    authorize.click()
    page.locator(".auth-container").get_by_role("button", name="Remove authorization").click()
    page.locator(".btn-done").click()
    status, answer = docs.answer()
    assert status == 401
    assert "API key" in answer["error"]

    authorize.click()
    page.locator(".auth-container input").fill(KEY)
    page.locator(".auth-container").get_by_role("button", name="Apply credentials").click()
    page.locator(".btn-done").click()
    assert docs.answer() == (200, ANSWER)


@pytest.mark.parametrize("has_samples", [True, False])
def test_request_with_an_image_says_what_to_send(
    page: Any, start: Callable[..., Address], has_samples: bool
) -> None:
    docs = Docs(page, start(lambda directory: ImageModel(), has_samples=has_samples))
    text = "Replace this text by a value of float32 [?, 224, 224, 3]."
    assert json.loads(docs.open(PREDICT).input_value()) == {"inputs": {"x": text}}
    note = page.locator(".opblock-description")
    assert 'predict("half", {"INPUT": array})' in note.text_content()
    assert note.get_by_text("the console").get_attribute("href") == "/"
    status, answer = docs.answer()
    assert status == 400
    assert text in answer["error"]


def test_tensors_with_an_image_say_what_to_send(page: Any, start: Callable[..., Address]) -> None:
    docs = Docs(page, start(lambda directory: ImageModel()))
    (x,) = json.loads(docs.open(INFER).input_value())["inputs"]
    assert (x["shape"], x["datatype"]) == ([1, 224, 224, 3], "FP32")
    assert "the console" in page.locator(".opblock-description").text_content()
    status, answer = docs.answer()
    assert status == 400
    assert "Replace this text by a value of float32" in answer["error"]


def test_page_shows_that_the_document_is_missing(
    page: Any, start: Callable[..., Address], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    docs = Docs(page, start(lambda directory: HalfModel(), ApiKeys(file)))
    page.locator("#key").wait_for()
    page.context.set_offline(True)
    docs.give(KEY)
    page.locator("#refusal").get_by_text("/openapi.json: Failed to fetch").wait_for()


def test_examples_of_classify_are_the_features(start: Callable[..., Address], serve: Serve) -> None:
    signature = Signature(
        {"inputs": spec("string", "i", None)},
        {"scores": spec("float32", "s", None, None)},
        "tensorflow/serving/classify",
    )

    class Classifier(FakeModel):
        signatures: Mapping[str, Signature] = {"serving_default": signature}
        signature_defs: Mapping[str, Any] = {"serving_default": definition(signature)}

    def make_sample(model: Model, directory: Path, name: str) -> SampleRequest:
        features = {"age": ExampleFeature("int64", 1, (7,))}
        array = np.array([b"\xff"], object)
        return SampleRequest({"inputs": SampleInput((1,), array, features)})

    manager = Manager(lambda directory: Classifier())
    aspire(manager, "half", {3: Path("/models/half/3")})
    address = serve(build_rest_app(DataPlane(manager, make_sample=make_sample)))
    paths = json.loads(ask(address, "GET", "/openapi.json")[1])["paths"]
    proposed = {
        path: operation["post"]["requestBody"]["content"]["application/json"].get("examples")
        for path, operation in paths.items()
        if "post" in operation and "half" in path
    }
    assert proposed == {
        "/v1/models/half:predict": {
            "serving_default": {"value": {"inputs": {"inputs": [{"b64": "/w=="}]}}}
        },
        "/v1/models/half:classify": {"serving_default": {"value": {"examples": [{"age": [7]}]}}},
        # JSON of the Open Inference Protocol cannot hold bytes that are no text.
        INFER: {
            "serving_default": {
                "summary": "serving_default: to be completed",
                "x-incomplete": True,
                "value": {
                    "inputs": [
                        {
                            "name": "inputs",
                            "shape": [1],
                            "datatype": "BYTES",
                            "data": ["Replace this text by a value of string [?]."],
                        }
                    ]
                },
            }
        },
    }
