// Writes values of tensors as JSON text and as serialized tf.Examples. The JSON text keeps all
// digits of 64-bit integers.

// Returns JSON text of a shape in which each element is the same text.
export function fill(shape, element) {
  return shape.reduceRight((text, size) => `[${Array(size).fill(text).join(",")}]`, element);
}

// Returns the value of a JSON text. Throws an error that names the field if the text is not JSON.
export function checkJson(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    const given = text.trim() === "" ? "nothing" : error.message;
    throw new Error(`${name}: asked for JSON, found ${given}. Enter a value such as 1.5 or [1, 2].`);
  }
}

// Returns the values of a feature as JSON text, in which floats have a decimal point.
export function featureJson(feature, text) {
  const values = readValues(feature, text);
  if (feature.kind === "int64") return `[${values.join(",")}]`;
  if (feature.kind === "float") return `[${values.map(formatFloat).join(",")}]`;
  return JSON.stringify(values);
}

// Serializes a tf.Example, and returns it in Base64. `texts` has the JSON of each feature's values.
export function encodeExample(features, texts) {
  const entries = features.flatMap((feature, index) => {
    const list = encodeList(feature, readValues(feature, texts[index]));
    return message(1, [...message(1, utf8(feature.name)), ...message(2, list)]);
  });
  return base64(message(1, entries));
}

export function base64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function readValues(feature, text) {
  const {name, kind, size} = feature;
  const parsed = checkJson(name, text);
  const values = Array.isArray(parsed) ? parsed : [parsed];
  if (size !== null && values.length !== size) {
    throw new Error(`${name}: asked for ${size} values, found ${values.length}. Enter ${size}.`);
  }
  if (kind === "int64") return readIntegers(name, text, values);
  const isValid = kind === "float" ? (value) => typeof value === "number" :
    (value) => typeof value === "string" || typeof value?.b64 === "string";
  const wrong = values.find((value) => !isValid(value));
  if (wrong !== undefined) {
    const asked = kind === "float" ? "numbers" : "texts in quotes";
    throw new Error(`${name}: asked for ${asked}, found ${JSON.stringify(wrong)}. ` +
      `Enter a value such as ${kind === "float" ? "[0.5]" : '["red"]'}.`);
  }
  return values;
}

// Reads the digits of the text, because JavaScript's numbers have only 53 bits.
function readIntegers(name, text, values) {
  const words = text.replace(/[[\]\s]/g, "").split(",").filter((word) => word !== "");
  const wrong = words.find((word) => !/^-?\d+$/.test(word)) ??
    words.find((word) => BigInt.asIntN(64, BigInt(word)) !== BigInt(word));
  if (wrong !== undefined || words.length !== values.length) {
    throw new Error(`${name}: asked for integers of 64 bits, found ${wrong ?? text}. ` +
      "Enter a value such as [1, 2].");
  }
  return words.map(BigInt);
}

function formatFloat(value) {
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function encodeList(feature, values) {
  if (feature.kind === "bytes") return message(1, values.flatMap((value) => message(1, bytesOf(value))));
  if (feature.kind === "int64") {
    return message(3, message(1, values.flatMap((value) => varint(BigInt.asUintN(64, value)))));
  }
  return message(2, message(1, [...new Uint8Array(new Float32Array(values).buffer)]));
}

function bytesOf(value) {
  if (typeof value === "string") return utf8(value);
  return [...atob(value.b64)].map((character) => character.charCodeAt(0));
}

function utf8(text) {
  return [...new TextEncoder().encode(text)];
}

// Encodes a field with a length: wire type 2 of protobuf.
function message(field, content) {
  return [field << 3 | 2, ...varint(BigInt(content.length)), ...content];
}

function varint(value) {
  const bytes = [];
  while (value > 0x7fn) {
    bytes.push(Number(value & 0x7fn) | 0x80);
    value >>= 7n;
  }
  return [...bytes, Number(value)];
}
