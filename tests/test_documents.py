"""The documents say what is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/concepts.md"]


def text(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_program_in_the_readme_is_the_tested_example() -> None:
    (quoted,) = re.findall(r"```python\n(.*?)```", text("README.md"), re.DOTALL)
    example = text("examples/half_plus_two.py").split('"""')[2]
    assert quoted.strip() == example.strip()


def test_the_request_in_the_readme_is_the_tested_one() -> None:
    docstring = text("examples/half_plus_two.py").split('"""')[1]
    for pattern in (r"-d '(.*?)'", r'\{"predictions".*\}'):
        assert re.findall(pattern, text("README.md")) == re.findall(pattern, docstring)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for link in re.findall(r"\]\((?!https?:|#)([^)]+)\)", text(document)):
        assert (ROOT / document).parent.joinpath(link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_that_is_named_is_there(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", text(document), re.MULTILINE)) <= targets


def test_the_two_commands_come_right_after_what_it_is_and_is_not() -> None:
    first_screen = text("README.md").splitlines()[:25]
    commands = [line.split()[:2] for line in first_screen if line.startswith("    ")]
    assert commands == [["make", "demo"], ["make", "test"]]


def test_make_demo_is_tpuserve_demo() -> None:
    recipe = re.search(r"^demo:.*\n\t(.*)", text("Makefile"), re.MULTILINE)
    assert recipe
    assert recipe[1] == "$(BIN)/tpuserve demo"


def test_ci_runs_make_check_which_lints_type_checks_and_tests() -> None:
    assert re.search(r"^make check$", text(".ci/run"), re.MULTILINE)
    assert re.search(r"^check: lint types test\b", text("Makefile"), re.MULTILINE)


def test_no_package_imports_another_it_must_not_know() -> None:
    forbidden = {"tpuserve": ("trainer", "server"), "trainer": ("server",), "server": ("trainer",)}
    for package, others in forbidden.items():
        for path in (ROOT / package).rglob("*.py"):
            imports = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
            assert not set(imports) & set(others), path
