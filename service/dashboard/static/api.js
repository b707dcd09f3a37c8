// Sends the requests that people try on /docs, with the session of the page, and shows each one and its answer.

import { say } from "./apsp.js";

const SHOWN = 100_000;   // characters of an answer that are shown
const STREAMED = 5_000;  // milliseconds for which a stream of events is read
const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

/** Return the address, headers and body of the request that a form describes. */
async function filled(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value;
    if (field.dataset.in === "path") {
      path = path.replace(`{${field.name}}`, value.split("/").map(encodeURIComponent).join("/"));
    } else if (value !== "" && field.dataset.in === "query") query.set(field.name, value);
    else if (value !== "") headers[field.name] = value;
  }
  const from = form.querySelector("[data-body]");
  const file = from?.files?.[0];
  if (from) headers["Content-Type"] = file ? "application/octet-stream" : "application/json";
  const asked = query.size ? `${path}?${query}` : path;
  return { url: asked, headers, body: from ? file ?? from.value : undefined, file: file?.name };
}

/** Return the request as a line for a terminal, without the key. */
function curl(method, { url, headers, body, file }) {
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method])];
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quote(`${name}: ${value}`));
  if (url.startsWith("/v1")) parts.push("-H", '"Authorization: Bearer $APSP_KEY"');
  if (body !== undefined) parts.push("--data-binary", file ? quote(`@${file}`) : quote(body));
  return [...parts, quote(location.origin + url)].join(" ");
}

/** Read an answer, and return the text that is shown of it. */
async function read(response, stop) {
  const type = response.headers.get("Content-Type") ?? "";
  const text = /json|text|csv|event-stream/.test(type);
  if (type.includes("event-stream")) setTimeout(() => stop.abort(), STREAMED);
  const decoder = new TextDecoder();
  let [shown, bytes] = ["", 0];
  try {
    for await (const piece of response.body ?? []) {
      bytes += piece.length;
      if (text) shown += decoder.decode(piece, { stream: true });
      if (shown.length > SHOWN) { stop.abort(); break; }
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
  if (!text) return bytes ? `${bytes.toLocaleString("en")} bytes of ${type || "an unknown type"}` : "";
  if (shown.length > SHOWN) return `${shown.slice(0, SHOWN)}\n… and more, which is not shown here`;
  try { return JSON.stringify(JSON.parse(shown), null, 2); } catch { return shown; }
}

async function send(form) {
  const method = form.dataset.method;
  if (method === "DELETE" && !confirm(`Send ${method} ${form.dataset.path}?`)) return;
  const answer = form.querySelector(".answer");
  const [status] = answer.children;
  const [sent, came] = answer.querySelectorAll("pre");
  const request = await filled(form);
  answer.hidden = false;
  sent.textContent = curl(method, request);
  came.textContent = "";
  status.textContent = "sent …";
  const stop = new AbortController();
  const began = performance.now();
  try {
    const response = await fetch(request.url, { method, headers: request.headers, body: request.body, signal: stop.signal });
    const took = Math.round(performance.now() - began);
    came.textContent = await read(response, stop);
    status.textContent = `${response.status} ${response.statusText} after ${took} ms${response.status === 401 ? ": log in first" : ""}`;
  } catch (error) {
    status.textContent = `There was no answer: ${error.message}`;
  }
  say(status.textContent);
}

document.querySelectorAll("form[data-try]").forEach((form) => form.addEventListener("submit", (event) => {
  event.preventDefault();
  send(form);
}));
