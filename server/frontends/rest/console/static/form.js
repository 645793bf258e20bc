// Creates the form fields for the inputs of a signature. Each field has its HTML element, and an
// asynchronous function `read`, which returns the value of the input as JSON text.

import {SCALES, draw, readBytes, readPixels} from "/console/static/picture.js";
import {create} from "/console/static/render.js";
import {checkJson, encodeExample, featureJson, fill} from "/console/static/tensors.js";

let nextId = 0;

// Returns the fields of a signature, one for each input.
export function createFields(signature) {
  return signature.inputs.map((input) => {
    const fieldset = create("fieldset");
    const legend = create("legend", "", input.name);
    legend.append(" ", create("span", "secondary", input.tensor));
    fieldset.append(legend);
    let read;
    if (input.features.length) read = addFeatures(fieldset, signature, input);
    else if (input.picture) read = addPicture(fieldset, input);
    else read = addValue(fieldset, input);
    return {name: input.name, element: fieldset, read};
  });
}

function addValue(parent, input) {
  if (input.value === null && input.shape !== null && input.dtype !== "string") {
    const field = labelled(parent, "All elements are", create("input"));
    field.value = input.dtype === "bool" ? "false" : input.dtype.startsWith("float") ? "0.5" : "0";
    return async () => {
      checkJson(input.name, field.value);
      return fill(input.shape, field.value.trim());
    };
  }
  const field = labelled(parent, "Value as JSON", create("textarea"));
  field.spellcheck = false;
  field.value = input.value ?? "";
  field.rows = Math.min(8, 1 + Math.ceil(field.value.length / 100));
  if (input.error) parent.append(create("p", "error-text", input.error));
  return async () => {
    checkJson(input.name, field.value);
    return field.value.trim();
  };
}

function addFeatures(parent, signature, input) {
  const fields = input.features.map((feature) => {
    const count = feature.size === null ? "any number of values" :
      `${feature.size} value${feature.size === 1 ? "" : "s"}`;
    const label = `${feature.name} (${feature.kind}, ${count})`;
    const field = labelled(parent, label, create("input"));
    field.spellcheck = false;
    field.value = feature.values;
    return field;
  });
  const texts = () => fields.map((field) => field.value);
  if (signature.verb !== "predict") {
    return async () => {
      const members = input.features.map((feature, index) =>
        `${JSON.stringify(feature.name)}: ${featureJson(feature, texts()[index])}`);
      return `{${members.join(", ")}}`;
    };
  }
  return async () => fill(input.shape, `{"b64": "${encodeExample(input.features, texts())}"}`);
}

function addPicture(parent, input) {
  const {picture, name} = input;
  const file = labelled(parent, "Picture", create("input"));
  file.type = "file";
  file.accept = "image/*";
  const isFloat = input.dtype.startsWith("float");
  let scale = null;
  if (!picture.is_encoded && isFloat) {
    scale = labelled(parent, "Range of the pixels", create("select"));
    for (const option of Object.keys(SCALES)) scale.append(new Option(option, option));
  }
  const canvas = create("canvas", "preview");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `The picture for ${name}`);
  canvas.hidden = true;
  const fallback = create("p", "secondary", "Without a picture, an example is sent.");
  const problem = create("p", "error-text");
  problem.setAttribute("role", "alert");
  parent.append(canvas, fallback, problem);
  const show = async () => {
    canvas.hidden = true;
    fallback.hidden = file.files.length > 0;
    problem.textContent = "";
    if (!file.files.length) return;
    await draw(name, file.files[0], picture, canvas);
    canvas.hidden = false;
  };
  file.addEventListener("change", () => {
    show().catch((error) => {
      problem.textContent = error.message;
    });
  });
  return async () => {
    if (!file.files.length) return input.value ?? fill(input.shape, isFloat ? "0.5" : "127");
    problem.textContent = "";
    await show();
    if (picture.is_encoded) return fill(input.shape, await readBytes(file.files[0]));
    return fill([input.shape[0]], readPixels(canvas, picture, isFloat, scale?.value));
  };
}

function labelled(parent, text, field) {
  const row = create("div", "field");
  const label = create("label", "", text);
  field.id = label.htmlFor = `field-${nextId++}`;
  row.append(label, field);
  parent.append(row);
  return field;
}
