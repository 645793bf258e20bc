import pytest

from trainer.compat.contrib_module_aliases import MODULE_ALIASES
from trainer.compat.contrib_replacements import REPLACEMENTS
from trainer.migration.names import contrib_names
from trainer.migration.names.classification import NameStatus


@pytest.mark.parametrize("form", sorted(MODULE_ALIASES))
def test_a_module_form_is_supplied_and_so_are_the_packages_that_lead_to_it(form: str) -> None:
    parts = form.split(".")
    for count in range(1, len(parts) + 1):
        assert contrib_names.classify(".".join(parts[:count])).kind is NameStatus.SUPPLIED


@pytest.mark.parametrize("name", sorted(REPLACEMENTS))
def test_a_name_that_is_replaced_is_gone_and_so_is_what_it_has_inside(name: str) -> None:
    path = name.removeprefix("tf.contrib.")
    inside = contrib_names.classify(f"{path}.zzz")
    assert (inside.kind, inside.says) == (NameStatus.GONE, REPLACEMENTS[name])
    # tpuserve supplies some modules in part; their replacement is for the other names.
    assert contrib_names.classify(path).kind in (NameStatus.GONE, NameStatus.SUPPLIED)


def test_of_a_module_that_is_supplied_near_names_come_before_what_replaces_the_rest() -> None:
    verdict = contrib_names.classify("seq2seq.sequence_los")
    assert (verdict.kind, verdict.says) == (NameStatus.UNKNOWN, "Did you mean sequence_loss?")
    assert contrib_names.classify("seq2seq.BeamSearchDecoder").kind is NameStatus.GONE
