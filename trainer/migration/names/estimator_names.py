"""What becomes of a name of tf.estimator, and of a module of the package tensorflow_estimator."""

from trainer.compat.contrib_names.module_aliases import MODULES
from trainer.compat.imports import estimator_aliases
from trainer.compat.source import estimator_names
from trainer.compat.source.estimator_names import GONE, Namespaces
from trainer.migration.names import contrib_names
from trainer.migration.names.classification import Kind, Verdict

_TPU_FORMS = "tpu.python.tpu."


def judge(path: str, *, is_v1: bool) -> Verdict:
    """What becomes of "tpu.TPUEstimator", a path below tf.estimator; "" is that itself."""
    first = path.partition(".")[0]
    if not is_v1 and first in estimator_names.V1.keys() - estimator_names.V2.keys():
        return Verdict(
            Kind.GONE, f"Name tf.compat.v1.estimator.{first}, or run the program with --tf1."
        )
    return _in(estimator_names.V1 if is_v1 else estimator_names.V2, path)


def judge_form(path: str) -> Verdict:
    """What becomes of "tpu.tpu_estimator.TPUEstimator", a path below its python.estimator."""
    if path == "tpu":
        return Verdict(Kind.SUPPLIED)
    if path.startswith("tpu."):
        form, _, inside = path.removeprefix("tpu.").partition(".")
        module = MODULES.get(f"{_TPU_FORMS}{form}")
        if module is not None:
            return contrib_names.in_module(module, inside, f"tensorflow_estimator.{path}")
    return _in(estimator_aliases.MODULES, path)


def _in(namespaces: Namespaces, path: str) -> Verdict:
    if path in namespaces:
        return Verdict(Kind.SUPPLIED)
    parts = path.split(".")
    ways = [".".join(parts[:count]) for count in range(len(parts))]
    inner = max((each for each in ways if each in namespaces), key=len)
    name = parts[inner.count(".") + 1 if inner else 0]
    if name in namespaces[inner]:
        module, _, attribute = namespaces[inner][name].partition(":")
        return contrib_names.supplied(module, attribute) if attribute else Verdict(Kind.SUPPLIED)
    for gone in (f"{inner}.{name}".lstrip("."), path, name):
        if gone in GONE:
            return Verdict(Kind.GONE, GONE[gone])
    below = f"{inner}." if inner else ""
    inside = [each.removeprefix(below) for each in (*namespaces, *GONE) if each.startswith(below)]
    return contrib_names.unknown(name, [*namespaces[inner], *filter(None, inside)])
