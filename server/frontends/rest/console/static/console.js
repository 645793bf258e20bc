// Polls the status of the server, and shows it.

import {History} from "/console/static/rates.js";
import {byId, renderErrors, renderModels, renderServer, setText} from "/console/static/render.js";
import {KeyRequired, getJson, hasKey, setKey} from "/console/static/server.js";
import {openTrial} from "/console/static/trial.js";

const POLL_MS = 2000;
const history = new History();
let timer = null;
let isPolling = false;

async function poll() {
  if (isPolling) return;
  clearTimeout(timer);
  timer = null;
  isPolling = true;
  try {
    const status = await getJson("/console/status");
    history.add(status);
    showConnection("");
    byId("key-form").hidden = true;
    showStatus(status);
  } catch (error) {
    if (error instanceof KeyRequired) return askForKey();
    showConnection(`The server does not answer: ${error.message}`);
  } finally {
    isPolling = false;
  }
  // A hidden page does not poll.
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}

function showStatus(status) {
  for (const id of ["summary", "models-section", "errors-section"]) byId(id).hidden = false;
  renderServer(status, history);
  renderModels(status, history, openTrial);
  renderErrors(status.errors);
}

function showConnection(text) {
  byId("connection").hidden = text === "";
  setText(byId("connection"), text);
}

function askForKey() {
  const form = byId("key-form");
  setText(byId("key-error"), hasKey() ? "The server does not accept this key." : "");
  if (!form.hidden) return;
  form.hidden = false;
  byId("key").focus();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(byId("key").value.trim());
  poll();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && timer === null && byId("key-form").hidden) poll();
});
poll();
