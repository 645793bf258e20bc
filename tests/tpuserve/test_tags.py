from tpuserve import tags


def test_comma_list_is_a_set_whatever_its_order() -> None:
    assert tags.parse("tpu,serve") == tags.parse(" serve, tpu ,") == tags.SERVE_TPU


def test_empty_value_is_the_empty_set() -> None:
    assert tags.parse("") == frozenset()


def test_a_tag_set_is_shown_sorted() -> None:
    assert tags.show(["tpu", "serve"]) == "{serve, tpu}"
