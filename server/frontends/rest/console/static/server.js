// Requests to the server. The API key stays in the memory of this page.

let apiKey = "";

export class KeyRequired extends Error {}

export function setKey(key) {
  apiKey = key;
}

export function hasKey() {
  return apiKey !== "";
}

// Sends a request with the API key, and returns the response.
export async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  if (apiKey) headers.set("Authorization", `Bearer ${apiKey}`);
  return fetch(path, {...options, headers, cache: "no-store", credentials: "omit"});
}

// Returns the JSON at a path. Throws KeyRequired if the server does not accept the key.
export async function getJson(path) {
  const response = await send(path);
  const text = await response.text();
  if (response.status === 401) throw new KeyRequired(errorMessage(text));
  if (!response.ok) throw new Error(errorMessage(text) || `status ${response.status}`);
  return JSON.parse(text);
}

// Returns the message in the body of an error response.
export function errorMessage(text) {
  try {
    return String(JSON.parse(text).error ?? text);
  } catch {
    return text;
  }
}
