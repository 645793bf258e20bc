// Loads the OpenAPI document, with an API key where the server requires one, and shows it.

const PATH = "/openapi.json";
// Marks integers beyond 53 bits, which JavaScript would round, while text is parsed as JSON.
const MARK = "64-bit integer ";
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g;
const MARKED = /"64-bit integer (-?\d+)"/g;
const form = document.getElementById("key-form");

function showError(message) {
  document.getElementById("refusal").textContent = message;
}

// Parses the document. JavaScript cannot hold integers beyond 53 bits, so bounds of this size are
// removed from the schemas, and an example with such integers becomes the JSON text of the example.
function parseDocument(text) {
  const marked = text.replace(TOKENS, (token) => token[0] === '"' ? token : `"${MARK}${token}"`);
  return JSON.parse(marked, (key, value) => {
    if (typeof value === "string" && value.startsWith(MARK)) {
      return key === "minimum" || key === "maximum" ? undefined : value;
    }
    if (key !== "value") return value;
    const json = JSON.stringify(value, null, 2);
    return json.includes(MARK) ? json.replace(MARKED, "$1") : value;
  });
}

// Shows answers and examples with integers beyond 53 bits as they are; Swagger UI would round them.
const exactIntegers = ({React, getComponent}) => ({
  afterLoad({fn}) {
    const {getJsonSampleSchema} = fn.jsonSchema202012;
    fn.jsonSchema202012.getJsonSampleSchema = (schema, config, type, example) =>
      typeof example === "string" ? example : getJsonSampleSchema(schema, config, type, example);
  },
  wrapComponents: {
    responseBody: (Original) => (props) => {
      const {content} = props;
      const isExact = typeof content !== "string" ||
        !(content.match(TOKENS) ?? []).some((token) => token[0] !== '"');
      if (isExact) return React.createElement(Original, props);
      const HighlightCode = getComponent("HighlightCode", true);
      const options = {language: "json", downloadable: true, fileName: "response.json", canCopy: true};
      return React.createElement("div", null, React.createElement("h5", null, "Response body"),
        React.createElement(HighlightCode, options, content));
    },
  },
});

async function loadDocument(key) {
  const headers = key ? {Authorization: `Bearer ${key}`} : {};
  const response = await fetch(PATH, {headers});
  form.hidden = response.status !== 401;
  if (response.status === 401) return showError(key && "The server does not accept this key.");
  const text = await response.text();
  if (!response.ok) return showError(`${PATH}: ${response.status} ${text}`);
  showError("");
  const ui = SwaggerUIBundle({
    spec: parseDocument(text),
    dom_id: "#swagger-ui",
    plugins: [exactIntegers],
    onComplete: () => key && ui.preauthorizeApiKey("bearer", key),
  });
}

function render(key) {
  loadDocument(key).catch((error) => showError(`${PATH}: ${error.message}`));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  render(document.getElementById("key").value.trim());
});
render("");
