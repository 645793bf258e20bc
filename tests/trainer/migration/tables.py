"""Makes the tables of docs/migrate_reference.md from the tables in the code.

$ python -m tests.trainer.migration.tables
writes the tables into the document.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainer.compat.contrib_module_aliases import MODULE_ALIASES
from trainer.compat.contrib_replacements import REPLACEMENTS
from trainer.compat.imports import estimator_aliases
from trainer.compat.source import estimator_names
from trainer.migration.names import static_index

DOCUMENT = Path(__file__).parents[3] / "docs/migrate_reference.md"
_CONTRIB = "trainer.compat.contrib"
_ESTIMATOR = estimator_aliases.ROOTS[0]
_TPU = "tpu.python.tpu."
REFUSALS = Path(__file__).parents[3] / "trainer/keras/model/unsupported_options.py"


def tables() -> dict[str, str]:
    """Return the text of each table, by the name in the comment that precedes it."""
    return {"keras": _keras(), "supplied": _supplied_table(), "refused": _refused_table()}


def read_tables(text: str) -> dict[str, str]:
    """Return the text of each table in a document, by the name in the preceding comment."""
    return {
        match[1]: match[2]
        for match in re.finditer(r"<!-- (\w+) -->\n(.*?)<!-- end -->", text, re.S)
    }


def _keras() -> str:
    # Parse the file instead of importing it: the package of the module imports TensorFlow.
    rows = []
    for node in ast.walk(ast.parse(REFUSALS.read_text())):
        if isinstance(node, ast.Dict):
            for key, call in zip(node.keys, node.values, strict=True):
                assert isinstance(call, ast.Call)
                why, instead = (ast.literal_eval(argument) for argument in call.args)
                rows.append((f"`{ast.literal_eval(key)}`" if key else "", why, f"{instead}."))
    return _table(("Option", "Why", "Instead"), rows)


def _supplied_table() -> str:
    rows = [(f"`tf.contrib.{path}`", _names(f"{_CONTRIB}.{path}")) for path in _contrib()]
    forms = ", ".join(f"`{alias}`" for alias in sorted(MODULE_ALIASES))
    rows.append(("modules of `tensorflow.contrib`", forms))
    modules = {
        f"tf.estimator.{path}".rstrip("."): names for path, names in estimator_names.V1.items()
    }
    modules |= {
        f"{_ESTIMATOR}.{path}".rstrip("."): names
        for path, names in estimator_aliases.MODULES.items()
        if names
    }
    together: dict[str, list[str]] = {}
    for module, names in modules.items():
        together.setdefault(_join_names(names), []).append(f"`{module}`")
    rows += [(", ".join(paths), shown_names) for shown_names, paths in together.items()]
    tpu_modules = [alias.removeprefix(_TPU) for alias in MODULE_ALIASES if alias.startswith(_TPU)]
    rows.append((f"modules of `{_ESTIMATOR}.tpu`", _join_names(tpu_modules)))
    rows.append(("`tf.keras.estimator`", _names("trainer.compat.keras_estimator")))
    embedding = "trainer.embedding.optimization_parameters"
    rows.append(("`tf.compat.v1.tpu.experimental`", _names(embedding)))
    tpu_embedding = f"`{estimator_aliases.TPU_EMBEDDING_MODULE}`"
    rows.append((tpu_embedding, _join_names(estimator_aliases.TPU_EMBEDDING_NAMES)))
    return _table(("Module", "Names"), rows)


def _refused_table() -> str:
    rows = [(f"`{name}`", says) for name, says in REPLACEMENTS.items()]
    rows += [(f"`tf.estimator.{name}`", says) for name, says in estimator_names.UNSUPPORTED.items()]
    together: dict[str, list[str]] = {}
    for name, says in rows:
        together.setdefault(says, []).append(name)
    return _table(
        ("Name", "What replaces it"), [(", ".join(names), says) for says, names in together.items()]
    )


def _contrib() -> list[str]:
    """Return the paths of the modules below tf.contrib that tpuserve supplies at the same path."""
    inner = (
        path
        for path, module in MODULE_ALIASES.items()
        if module == f"{_CONTRIB}.{path}" and static_index.public_names(module)
    )
    return sorted({*(static_index.public_names(_CONTRIB) or ()), *inner})


def _names(module: str) -> str:
    return _join_names(static_index.public_names(module) or ())


def _join_names(names: Iterable[str] | Mapping[str, str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _write_tables() -> None:
    text = DOCUMENT.read_text()
    for name, table in tables().items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}{table}{end}{rest.partition(end)[2]}"
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    _write_tables()
