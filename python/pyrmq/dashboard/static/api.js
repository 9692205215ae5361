// Requests to the server of this page.

export class ApiError extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

const KEY = "pyrmq-token";

// The token comes once, behind the `#` of the address that the server printed, and leaves the address bar at once.
export function takeToken() {
  const match = /^#token=([\w-]+)$/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(KEY, match[1]);
  history.replaceState(null, "", "/#/");
}

export function setToken(text) {
  sessionStorage.setItem(KEY, text.trim());
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(KEY));
}

async function call(path, options) {
  let response;
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { "x-pyrmq-token": token } : {}) };
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The dashboard itself does not answer: was it stopped?", 0);
  }
  let tree = null;
  try {
    tree = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!response.ok) throw new ApiError(tree?.error ?? `HTTP ${response.status}`, response.status);
  return tree;
}

export function get(name, query = {}, signal = undefined) {
  const text = new URLSearchParams(query).toString();
  return call(`/api/${name}${text ? `?${text}` : ""}`, { signal });
}

export function post(name, tree) {
  return call(`/api/${name}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(tree),
  });
}
