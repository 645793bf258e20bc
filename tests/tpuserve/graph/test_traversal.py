from tpuserve.graph.traversal import find_reachable

EDGES = {"a": ["b", "c"], "b": ["d"], "c": ["d", "x"], "d": ["a"], "e": ["a"]}


def test_names_that_edges_lead_to_are_found_once_even_in_a_cycle() -> None:
    assert find_reachable(["b"], EDGES.get) == {"a", "b", "c", "d"}


def test_a_name_that_is_no_node_is_left_out() -> None:
    assert find_reachable(["x", "e"], EDGES.get) == {"a", "b", "c", "d", "e"}


def test_a_long_path_needs_no_recursion() -> None:
    path = {str(number): [str(number + 1)] for number in range(100_000)}
    assert len(find_reachable(["0"], path.get)) == 100_000
