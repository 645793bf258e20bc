from tpuserve import tags


def test_comma_list_is_a_set_whatever_its_order() -> None:
    assert tags.parse_tags("tpu,serve") == tags.parse_tags(" serve, tpu ,") == tags.SERVE_TPU


def test_empty_value_is_the_empty_set() -> None:
    assert tags.parse_tags("") == frozenset()


def test_a_tag_set_is_shown_sorted() -> None:
    assert tags.format_tags(["tpu", "serve"]) == "{serve, tpu}"
