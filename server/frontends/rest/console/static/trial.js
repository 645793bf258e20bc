// The form that tries a signature of a version.

import {createFields} from "/console/static/form.js";
import {byId, create, setText} from "/console/static/render.js";
import {errorMessage, getJson, hasKey, send} from "/console/static/server.js";

// The largest numbers of characters to show, because a browser takes seconds to show a long text. A
// longer answer is cut, and a longer command is not shown.
const LONGEST_ANSWER = 100_000;
const LONGEST_COMMAND = 4_000;

let version = null;
let fields = [];

// Shows the form for a version of a model.
export async function openTrial(model, number) {
  const query = new URLSearchParams({model, version: number});
  setText(byId("trial-title"), `Try ${model}, version ${number}`);
  showAnswer("");
  showError("");
  byId("trial").hidden = false;
  byId("trial-form").hidden = true;
  byId("trial").scrollIntoView({behavior: "smooth"});
  try {
    version = await getJson(`/console/signatures?${query}`);
  } catch (error) {
    return showError(error.message);
  }
  const select = byId("signature");
  select.replaceChildren(...version.signatures.map(({name}) => new Option(name, name)));
  byId("trial-form").hidden = false;
  showSignature();
  select.focus({preventScroll: true});
}

function signature() {
  return version.signatures.find(({name}) => name === byId("signature").value);
}

function showSignature() {
  showAnswer("");
  showError("");
  fields = createFields(signature());
  byId("fields").replaceChildren(...fields.map(({element}) => element));
  const notes = fields.length ? [] : [create("p", "secondary", "This signature has no inputs.")];
  if (signature().reason) notes.push(create("p", "secondary", signature().reason));
  byId("fields").append(...notes);
  const outputs = signature().outputs.map(({name, tensor}) => `${name}: ${tensor}`);
  setText(byId("outputs"), `Returns ${outputs.join(", ")}`);
}

// Returns the body of the request as text. Throws an error that says which field is wrong.
async function readBody() {
  const {name, verb} = signature();
  const texts = await Promise.all(fields.map(({read}) => read()));
  const named = `"signature_name": ${JSON.stringify(name)}`;
  if (verb !== "predict") return `{${named}, "examples": [${texts.join(", ")}]}`;
  const inputs = fields.map((field, index) => `${JSON.stringify(field.name)}: ${texts[index]}`);
  return `{${named}, "inputs": {${inputs.join(", ")}}}`;
}

async function sendRequest() {
  showAnswer("");
  showError("");
  let body;
  try {
    body = await readBody();
  } catch (error) {
    return showError(error.message);
  }
  const path = `/v1/models/${encodeURIComponent(version.model)}/versions/${version.version}` +
    `:${signature().verb}`;
  const started = performance.now();
  try {
    const response = await send(path, {method: "POST", body});
    const text = await response.text();
    const milliseconds = Math.round(performance.now() - started);
    if (!response.ok) return showError(`${response.status}: ${errorMessage(text)}`);
    showAnswer(text, `${response.status} in ${milliseconds} ms`);
  } catch (error) {
    return showError(`The server does not answer: ${error.message}`);
  }
  byId("command").hidden = body.length > LONGEST_COMMAND;
  setText(byId("command-text"), body.length > LONGEST_COMMAND ? "" :
    `curl ${hasKey() ? '-H "Authorization: Bearer $KEY" ' : ""}-d ${quote(body)} ` +
      quote(location.origin + path));
}

// Quotes a text for a shell. encodeURIComponent leaves ' in a path as it is.
function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function showAnswer(text, title = "") {
  byId("answer").hidden = title === "";
  setText(byId("answer-title"), title);
  setText(byId("answer-text"), text.length <= LONGEST_ANSWER ? text :
    `${text.slice(0, LONGEST_ANSWER)}\n… ${text.length - LONGEST_ANSWER} more characters`);
}

function showError(text) {
  setText(byId("trial-error"), text);
}

byId("signature").addEventListener("change", showSignature);
byId("trial-close").addEventListener("click", () => {
  byId("trial").hidden = true;
});
byId("trial-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("send");
  button.disabled = true;
  try {
    await sendRequest();
  } finally {
    button.disabled = false;
  }
});
