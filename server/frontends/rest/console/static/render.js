// Shows the status of the server in the page.

import {chartSeconds} from "/console/static/rates.js";

const STATE_CLASSES = {AVAILABLE: "good", END: "bad"};
const MAX_BATCH_RANGES = 6;
const numbers = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});
const counts = new Intl.NumberFormat("en", {maximumFractionDigits: 0});

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function create(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

export function renderServer(status, history) {
  setText(byId("server-version"), status.tpuserve_version);
  const badge = byId("readiness");
  badge.className = `badge ${status.unready_reason ? "bad" : "good"}`;
  setText(badge, status.unready_reason ? `not ready: ${status.unready_reason}` : "ready");
  const rates = history.rates();
  setText(byId("request-rate"), formatRate(rates?.requests));
  setText(byId("error-rate"), formatRate(rates?.errors));
  setText(byId("in-flight"), counts.format(status.requests_in_flight));
  const waiting = status.models.reduce((total, model) => total + model.queue_length, 0);
  setText(byId("queue-length"), counts.format(waiting));
  setText(byId("memory"),
    `${formatBytes(status.resident_bytes)} of ${formatBytes(status.memory_bytes)}`);
  const series = history.series();
  const maximum = Math.max(1, ...series.map((point) => point.rate));
  const points = series.map((point) =>
    `${240 * (1 - point.age / chartSeconds)},${46 - 44 * point.rate / maximum}`);
  byId("chart-line").setAttribute("points", points.join(" "));
  setText(byId("chart-maximum"), series.length ? `up to ${numbers.format(maximum)}` : "");
}

// Shows the models. Elements stay the same between calls, so that none loses the focus.
export function renderModels(status, history, onTry) {
  byId("no-models").hidden = status.models.length > 0;
  updateChildren(byId("models"), status.models, (model) => model.name, createModel,
    (element, model) => updateModel(element, model, history, onTry));
}

export function renderErrors(errors) {
  byId("no-errors").hidden = errors.length > 0;
  byId("errors").hidden = errors.length === 0;
  const rows = errors.map((error) => {
    const row = create("tr");
    row.append(
      create("td", "nowrap", new Date(error.time_ms).toLocaleTimeString("en-GB")),
      create("td", "", error.model || "–"),
      create("td", "", error.protocol),
      create("td", "nowrap", error.status),
      create("td", "number", counts.format(error.count)),
      create("td", "", error.message),
    );
    return row;
  });
  byId("errors").querySelector("tbody").replaceChildren(...rows);
}

function createModel(model) {
  const card = create("article", "card");
  const header = create("div", "model-header");
  const title = create("h3", "", model.name);
  const figures = create("dl", "figures");
  for (const [name, label] of [
    ["requests", "Requests/s"], ["errors", "Errors/s"], ["p50", "p50"], ["p99", "p99"],
    ["queue", "Queue"],
  ]) {
    const figure = create("div");
    figure.append(create("dt", "", label), create("dd", name));
    figures.append(figure);
  }
  header.append(title, figures);
  const table = create("table");
  const head = table.createTHead().insertRow();
  for (const [label, className] of [
    ["Version", "column-10"], ["State", "column-12"], ["Metagraph, device and why", ""],
    ["Requests", "number column-8"], ["Rows per request", "number column-10"],
    ["Batches by rows", "column-20"], ["", "column-8"],
  ]) {
    const cell = create("th", className, label);
    cell.scope = "col";
    head.append(cell);
  }
  table.createTBody();
  const scroll = create("div", "scroll");
  scroll.append(table);
  card.append(header, create("p", "error-text"), scroll);
  return card;
}

function updateModel(card, model, history, onTry) {
  const rates = history.rates(model.name);
  const figures = {
    requests: formatRate(rates?.requests),
    errors: formatRate(rates?.errors),
    p50: formatMilliseconds(history.latency(model.name, 0.5)),
    p99: formatMilliseconds(history.latency(model.name, 0.99)),
    queue: counts.format(model.queue_length),
  };
  for (const [name, text] of Object.entries(figures)) {
    setText(card.querySelector(`dd.${name}`), text);
  }
  const memory = model.loaded_bytes ? ` (${formatBytes(model.loaded_bytes)})` : "";
  setText(card.querySelector("h3"), model.name + memory);
  setText(card.querySelector(".error-text"), model.reason);
  const table = card.querySelector("table");
  table.hidden = model.versions.length === 0;
  updateChildren(table.tBodies[0], model.versions, (version) => version.version,
    () => createVersion(), (row, version) => updateVersion(row, model, version, onTry));
}

function createVersion() {
  const row = create("tr");
  row.append(create("td"), create("td", "nowrap"), create("td"),
    create("td", "number"), create("td", "number"), create("td"), create("td", "number"));
  row.cells[1].append(create("span", "badge"));
  row.cells[2].append(create("div"), create("div", "reason"));
  const button = create("button", "", "Try it");
  button.type = "button";
  row.cells[6].append(button);
  return row;
}

function updateVersion(row, model, version, onTry) {
  const [number, state, selection, requests, rows, batches, action] = row.cells;
  setText(number, version.version);
  const badge = state.firstChild;
  badge.className = `badge ${STATE_CLASSES[version.state] ?? ""}`;
  setText(badge, version.is_failed && version.state === "END" ? "FAILED" : version.state);
  if (!version.is_failed && version.state === "END") badge.className = "badge";
  setText(selection.firstChild, version.selection);
  setText(selection.lastChild, version.reason);
  selection.lastChild.className = version.is_failed ? "error-text" : "secondary";
  const isAvailable = version.requests !== undefined;
  setText(requests, isAvailable ? counts.format(version.requests) : "–");
  setText(rows, version.requests ? numbers.format(version.rows / version.requests) : "–");
  setText(batches, describeBatches(version));
  const button = action.firstChild;
  button.hidden = !isAvailable || !onTry;
  button.setAttribute("aria-label", `Try ${model.name}, version ${version.version}`);
  button.onclick = () => onTry(model.name, version.version);
}

function describeBatches(version) {
  if (!version.batching) return version.requests === undefined ? "–" : "not batched";
  const ranges = Object.entries(version.batching.batch_sizes);
  const largest = ranges.sort((first, second) => second[1] - first[1]).slice(0, MAX_BATCH_RANGES);
  largest.sort((first, second) => parseInt(first[0]) - parseInt(second[0]));
  return largest.map(([range, count]) => `${range}: ${counts.format(count)}`).join(" · ") ||
    "no batch yet";
}

// Creates or reuses a child of an element for each item, in the order of the items, and updates it.
function updateChildren(parent, items, keyOf, createChild, updateChild) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = keyOf(item);
    let child = known.get(key);
    if (child === undefined) {
      child = createChild(item);
      child.dataset.key = key;
    }
    known.delete(key);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    updateChild(child, item);
  });
  for (const child of known.values()) child.remove();
}

function formatRate(rate) {
  return rate === undefined ? "–" : numbers.format(rate);
}

function formatMilliseconds(milliseconds) {
  return milliseconds === null ? "–" : `${numbers.format(milliseconds)} ms`;
}

function formatBytes(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let index = 0;
  while (bytes >= 1000 && index < units.length - 1) {
    bytes /= 1000;
    index += 1;
  }
  return `${numbers.format(bytes)} ${units[index]}`;
}
