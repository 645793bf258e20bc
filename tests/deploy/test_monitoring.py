"""The dashboard and the alerts are valid, and use only metrics and labels of a live server."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.server.whole_server.fake_server import GOOD, SECONDS, FakeServer

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: Any = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
(GROUP,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yaml").read_text())["groups"]
# Labels that Prometheus adds to each series that it scrapes.
SCRAPED = {"instance", "job"}


def panel_expressions() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


EXPRESSIONS = dict(panel_expressions()) | {rule["alert"]: rule["expr"] for rule in GROUP["rules"]}


def without_variables(expression: str) -> str:
    """Replace the variables of Grafana as Grafana does before it sends an expression."""
    return expression.replace("$__rate_interval", "5m").replace("$model", ".*")


def selectors(node: Any) -> Iterator[Any]:
    """Iterate over the selectors of metrics in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from selectors(argument)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from selectors(node.lhs)
        yield from selectors(node.rhs)
    elif isinstance(node, (promql_parser.AggregateExpr, promql_parser.ParenExpr)):
        yield from selectors(node.expr)
    else:
        assert isinstance(node, promql_parser.NumberLiteral), node


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """Return metric → labels, of a live server that has answered a request."""
    server = FakeServer(tmp_path_factory.mktemp("monitoring"))
    httpx.post(server.predict_url, content=GOOD, timeout=SECONDS)
    page = httpx.get(f"{server.url}/metrics", timeout=SECONDS).text
    server.kill()
    types = dict(re.findall(r"^# TYPE (tpuserve_\w+) (\w+)$", page, re.MULTILINE))
    metric_labels: dict[str, set[str]] = {}
    for name, kind in types.items():
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        metric_labels |= {name + suffix: set() for suffix in suffixes}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            metric_labels.setdefault(sample.name, set()).update(sample.labels)
    return metric_labels


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression_is_valid(name: str) -> None:
    tree = promql_parser.parse(without_variables(EXPRESSIONS[name]))
    assert any(selector.name.startswith("tpuserve_") for selector in selectors_of(tree))


def selectors_of(tree: Any) -> list[Any]:
    return [selector for selector in selectors(tree) if selector.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_metrics_and_labels_exist_on_a_live_server(
    name: str, labels: Mapping[str, set[str]]
) -> None:
    expression = without_variables(EXPRESSIONS[name])
    used = {selector.name for selector in selectors_of(promql_parser.parse(expression))}
    assert used <= labels.keys()
    matched = re.findall(r"(\w+)(?:=~|!=|=)\"", expression)
    grouped = re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression)))
    # A counter without an event has no series, and so no labels yet.
    known = set.union(*(labels[metric] for metric in used))
    if known:
        assert {*matched, *grouped} <= known | SCRAPED


def test_dashboard_has_only_fields_of_grafanas_schema() -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    encoded = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(DASHBOARD)))
    assert missing(DASHBOARD, encoded) == []


def missing(expected: Any, actual: Any, where: str = "dashboard") -> list[str]:
    """Return the places where the decoded and encoded dashboard lacks a value of the file."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return [where]
        return [
            place
            for key, value in expected.items()
            for place in missing(value, actual.get(key), f"{where}.{key}")
        ]
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(expected) != len(actual):
            return [where]
        pairs = zip(expected, actual, strict=True)
        return [
            place
            for index, (one, other) in enumerate(pairs)
            for place in missing(one, other, f"{where}[{index}]")
        ]
    return [] if expected == actual else [where]


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in panels)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: str(rule["alert"]))
def test_alert_has_a_severity_and_tells_what_is_wrong(rule: Mapping[str, Any]) -> None:
    assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert used <= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))
