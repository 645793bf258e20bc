"""The documents agree with the code, the examples and each other."""

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig, TPUConfig
from trainer.distribution.topology import BatchTopology, TpuSlice

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/client.md",
    "docs/clusters.md",
    "docs/concepts.md",
    "docs/conformance.md",
    "docs/containers.md",
    "docs/embeddings.md",
    "docs/storage.md",
    "docs/export.md",
    "docs/install.md",
    "docs/migrate.md",
    "docs/migrate_reference.md",
    "docs/move.md",
    "docs/original-tests.md",
    "docs/train.md",
    "docs/serve.md",
    "docs/observability.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/predict.md",
    "docs/ray.md",
    "docs/tpu.md",
    "docs/zoo.md",
]


def text(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_program_in_the_readme_is_the_tested_example() -> None:
    (quoted,) = re.findall(r"```python\n(import argparse\n.*?)```", text("README.md"), re.DOTALL)
    example = text("examples/half_plus_two.py").split('"""')[2]
    assert quoted.strip() == example.strip()


def commands(document: str) -> list[str]:
    """Return the commands of the examples in a document, each with its output."""
    blocks = re.findall(r"^    \$ python .*\n(?:    .*\n)*", text(document), re.MULTILINE)
    parts = [part for block in blocks for part in re.split(r"(?=^    \$ )", block, flags=re.M)]
    return [part for part in parts if part.startswith(("    $ python", "    $ TPUSERVE"))]


@pytest.mark.parametrize("document", ["docs/export.md", "docs/train.md"])
def test_the_output_of_an_example_is_quoted_from_its_tested_docstring(document: str) -> None:
    quoted = commands(document)
    assert quoted
    for command in quoted:
        (example,) = re.findall(r"examples/\w+\.py", command)
        assert command.strip() in text(example), command


def test_the_lines_on_ray_in_the_readme_are_those_of_the_tested_document() -> None:
    deployments = r"^    (serve\.run\(\n(?:     .*\n)+    \)\n)"
    (deployment,) = re.findall(deployments, text("README.md"), re.MULTILINE)
    assert textwrap.dedent("    " + deployment) in text("docs/ray.md")


def test_every_example_is_named_in_a_document() -> None:
    documents = "".join(map(text, DOCUMENTS))
    for example in (ROOT / "examples").glob("*.py"):
        assert f"examples/{example.name}" in documents, example


def batch_sizes() -> list[list[str]]:
    """Return the cells of the table of batch sizes, without its header."""
    table = text("docs/train.md").split("### Batch sizes")[1].split("###")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def topology(row: list[str], mode: str) -> BatchTopology:
    """Return the topology of a row of the table in a mode."""
    cores, hosts = row[0].split(", ")
    input_mode, _, variant = row[1].partition(", ")
    settings: dict[str, Any] = {}
    if variant == "SLICED in evaluation":
        settings["eval_training_input_configuration"] = InputPipelineConfig.SLICED
    elif variant:
        settings["num_cores_per_replica"] = int(variant.removesuffix(" cores per replica"))
    config = TPUConfig(per_host_input_for_training=InputPipelineConfig[input_mode], **settings)
    return BatchTopology(TpuSlice(int(hosts), int(cores)), config, mode, 64)


def batch_size_text(batch_topology: BatchTopology, name: str) -> str:
    """Return an attribute of a topology as text, or "refused" for an invalid topology."""
    try:
        batch_topology.check()
    except InvalidSetting:
        return "refused"
    return str(getattr(batch_topology, name))


@pytest.mark.parametrize("row", batch_sizes()[1:], ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_row_of_the_table_of_batch_sizes_agrees_with_the_topology(row: list[str]) -> None:
    modes = [topology(row, mode) for mode in ("train", "eval", "infer")]
    for column, name in ((2, "batch_size_for_input_fn"), (3, "batch_size_for_model_fn")):
        assert row[column] == ", ".join(batch_size_text(mode, name) for mode in modes)
    pipelines = modes[0].pipelines
    assert row[4] == f"{len(pipelines)} × {len(pipelines[0].replicas)}"


def test_the_picture_shows_the_batch_sizes_that_the_topology_gives() -> None:
    expected = BatchTopology(TpuSlice(hosts=2, cores=8), TPUConfig(), "train", 16)
    picture = text("docs/pictures/sharding.svg")
    assert picture.count(f">batch_size {expected.batch_size_for_model_fn}<") == expected.replicas
    for pipeline in expected.pipelines:
        rows = expected.batch_size_for_input_fn
        assert f">host {pipeline.host}: its input_fn gives {rows} rows, split in 4<" in picture


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as in a link."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_has_a_target(document: str) -> None:
    for link in re.findall(r"\]\((?!https?:|#)([^)]+)\)", text(document)):
        name, _, heading = link.partition("#")
        target = (ROOT / document).parent / name
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE) if heading else []
        assert not heading or heading in list(map(anchor, headings))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_python_block_is_python(document: str) -> None:
    for block in re.findall(r"^```python.*\n(.*?)^```", text(document), re.MULTILINE | re.DOTALL):
        compile(block, document, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_paragraph_before_a_file_names_the_file(document: str) -> None:
    # A page shows the block, but not the name behind its language.
    for before, name in re.findall(r"([^\n]*\n(?:[^\n]+\n)*)\n```\w+ (\S+)\n", text(document)):
        assert f"`{name}`" in before


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_in_a_document_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", text(document), re.MULTILINE)) <= targets


def test_the_first_screen_of_the_readme_has_the_two_commands() -> None:
    before_the_answer, _, _ = text("README.md").partition("```console")
    commands = [
        line.split("#")[0].split()
        for line in before_the_answer.splitlines()
        if line.startswith("    ")
    ]
    path = "server/sample/models/digits"
    assert commands == [["pip", "install", "."], ["tpuserve", "serve", path]]


def test_make_demo_is_tpuserve_demo() -> None:
    recipe = re.search(r"^demo:.*\n\t(.*)", text("Makefile"), re.MULTILINE)
    assert recipe
    assert recipe[1] == "$(BIN)/tpuserve demo"


def test_ci_begins_with_the_command_of_the_readme_and_runs_all_tiers() -> None:
    parts = re.findall(r"^(?:\w+=\S+ )?part (\S+)$", text(".ci/run"), re.MULTILINE)
    assert parts == ["test", "lint", "types", "test-wheel", "test-slow"]
    assert re.search(r"^    make test\b", text("README.md"), re.MULTILINE)
    assert re.search(r"^test-all: test test-slow\b", text("Makefile"), re.MULTILINE)


def test_no_package_imports_a_forbidden_package() -> None:
    forbidden = {"tpuserve": ("trainer", "server"), "trainer": ("server",), "server": ("trainer",)}
    for package, others in forbidden.items():
        for path in (ROOT / package).rglob("*.py"):
            imports = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
            assert not set(imports) & set(others), path


def test_installation_document_lists_every_extra() -> None:
    project = (
        text("pyproject.toml").split("[project.optional-dependencies]")[1].split("[project.")[0]
    )
    extras = set(re.findall(r"^([a-z]+) = \[", project, re.MULTILINE)) - {"dev"}
    assert set(re.findall(r"^\| `([a-z]+)` \|", text("docs/install.md"), re.MULTILINE)) == extras


def test_no_text_installs_tpuserve_from_an_index_of_packages() -> None:
    # There is no release: pip finds no package of this name.
    wrong = re.compile(r"(?<![/\w])tpuserve\[[{a-z]|pip install ['\"]?tpuserve\b")
    for folder in ("docs", "tpuserve", "trainer", "server", "examples", "deploy"):
        for path in (ROOT / folder).rglob("*.*"):
            assert path.suffix not in (".md", ".py", ".yaml") or not wrong.search(
                path.read_text()
            ), path
    assert not any(wrong.search(text(document)) for document in DOCUMENTS)


def layers(package: str) -> list[set[str]]:
    """Return the layers of a package or room in the contract of pyproject.toml, highest first."""
    pattern = rf'^containers = \["{re.escape(package)}"\]\nlayers = (\[.*?\])$'
    (rows,) = re.findall(pattern, text("pyproject.toml"), re.MULTILINE | re.DOTALL)
    return [set(row.split(" | ")) for row in ast.literal_eval(rows)]


def layers_in_picture(package: str) -> list[set[str]]:
    """Return the layers of a package in the picture of CONTRIBUTING.md, highest first."""
    rooms = text("CONTRIBUTING.md").split("## The rooms")[1]
    (picture,) = re.findall(rf"^    {package}  +(.*\n(?:    .*\n)*)", rooms, re.MULTILINE)
    rows = re.sub(r"\(.*?\)", "", picture).replace("─▶", "\n").splitlines()
    return [{room.strip() for room in row.split("·")} for row in rows]


@pytest.mark.parametrize("package", ["trainer", "server", "tpuserve"])
def test_the_picture_of_the_rooms_shows_the_layers_of_the_contract(package: str) -> None:
    assert layers_in_picture(package) == layers(package)


def test_the_glossary_is_sorted() -> None:
    glossary = text("CONTRIBUTING.md").split("## Glossary")[1]
    terms = [term.lower() for term in re.findall(r"^- \*\*(.*?)\*\*", glossary, re.MULTILINE)]
    assert terms == sorted(terms)
