import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.compat import contrib, contrib_missing_names
from trainer.compat.contrib_module_aliases import MODULE_ALIASES, find_needed_package
from trainer.compat.contrib_replacements import REPLACEMENTS

_DIRECTORY = Path(contrib.__file__).parent


def _list_supplied_names() -> Iterator[tuple[str, list[str]]]:
    """Yield each module of tf.contrib, and the names in its literal `__all__`."""
    for name in contrib.__all__:
        paths = [_DIRECTORY / f"{name}.py", _DIRECTORY / name / "__init__.py"]
        (path,) = (candidate for candidate in paths if candidate.exists())
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                yield f"tf.contrib.{name}", ast.literal_eval(statement.value)


def test_every_module_has_a_literal_all() -> None:
    assert [name for name, _ in _list_supplied_names()] == [
        f"tf.contrib.{name}" for name in contrib.__all__
    ]


def test_supplied_names_have_no_replacement() -> None:
    names = {f"{module}.{name}" for module, supplied in _list_supplied_names() for name in supplied}
    assert names & REPLACEMENTS.keys() == set()


def test_every_replacement_is_a_sentence() -> None:
    assert [name for name, text in REPLACEMENTS.items() if not text.endswith(".")] == []
    assert [name for name in REPLACEMENTS if not name.startswith("tf.contrib.")] == []


def test_aliases_of_our_modules_exist() -> None:
    ours = {
        module
        for module in MODULE_ALIASES.values()
        if module.startswith("trainer.") and find_needed_package(module) is None
    }
    files = {module.replace(".", "/") for module in ours}
    root = _DIRECTORY.parents[2]
    missing = [
        file
        for file in files
        if not (root / f"{file}.py").exists() and not (root / file / "__init__.py").exists()
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        ("tf.contrib.tpu", "keras_to_tpu_model", "Use trainer.model_to_tpu_estimator"),
        ("tf.contrib.seq2seq", "BeamSearchDecoder", "only sequence_loss is supplied"),
        ("tf.contrib", "slimm", "Did you mean slim?"),
        ("tf.contrib", "distributions", "Use the package tensorflow-probability"),
        ("tf.contrib.data", "map_and_bach", "Did you mean map_and_batch?"),
        ("tf.contrib.data", "xyz", "is not known. tf.contrib.data has map_and_batch, slim"),
        ("tf.contrib.data", "__path__", "tf.contrib.data.__path__ does not exist"),
    ],
)
def test_the_error_for_a_missing_name_gives_its_replacement(
    module: str, name: str, error: str
) -> None:
    assert error in str(
        contrib_missing_names.missing_name_error(module, name, ["map_and_batch", "slim"])
    )


def test_a_missing_module_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Use the package tensorflow-gan"):
        contrib.gan  # noqa: B018
    assert not hasattr(contrib, "nothing")
