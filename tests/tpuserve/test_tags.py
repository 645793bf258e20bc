from tpuserve import tags


def test_order_and_spaces_of_a_comma_separated_list_do_not_matter() -> None:
    assert tags.parse_tags("tpu,serve") == tags.parse_tags(" serve, tpu ,") == tags.SERVE_TPU


def test_empty_value_is_the_empty_set() -> None:
    assert tags.parse_tags("") == frozenset()


def test_tags_are_formatted_sorted() -> None:
    assert tags.format_tags(["tpu", "serve"]) == "{serve, tpu}"
