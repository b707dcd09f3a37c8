// Uploads a graph file that was dropped anywhere on the page, or chosen, and then opens the page of the graph.

import { say } from "./apsp.js";

// options of the command line in messages, and the fields of the form that mean the same; as service/dashboard/render.py
const FIELDS = {
  "--undirected": "Arcs: both ways", "--directed": "Arcs: one way", "--weight": "Column of the weights",
  "--unweighted": "Count arcs instead of weights", "--length-of": "Lengths as a formula",
  "--also": "Further columns to sum along paths",
  "--labels": "Attribute that names vertices",
};
const spoken = (text) => text.replace(/(?<![\w-])--[a-z-]+/g, (option) => (option in FIELDS ? `“${FIELDS[option]}”` : option));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function size(bytes) {
  let k = 0;
  for (; bytes >= 1024 && k < UNITS.length - 1; k += 1) bytes /= 1024;
  return `${k && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${UNITS[k]}`;
}

function address(form, name) {
  const query = new URLSearchParams({ filename: name.slice(-255), name: name.slice(-200) });
  for (const [key, value] of new FormData(form)) {
    if (key !== "file" && value) query.set(key, value);
  }
  return `/v1/graphs?${query}`;
}

function send(form, file) {
  const shown = form.querySelector(".sending");
  const refused = form.querySelector(".problem");
  const bar = shown.querySelector("progress");
  const words = shown.querySelector("output");
  const stop = shown.querySelector("[data-stop]");
  // fetch does not report how much of a body was sent, and XMLHttpRequest does
  const request = new XMLHttpRequest();
  const over = () => { shown.hidden = true; form.elements.file.value = ""; };
  const refuse = (title, detail) => {
    over();
    refused.hidden = false;
    refused.querySelector("strong").textContent = title;
    refused.querySelector("p").textContent = detail;
    say(`${title}. ${detail}`);
  };
  refused.hidden = true;
  shown.hidden = false;
  shown.querySelector("label").textContent = file.name;
  bar.value = 0;
  request.upload.onprogress = (event) => {
    bar.value = event.loaded / (event.total || 1);
    words.textContent = `${size(event.loaded)} of ${size(event.total)}`;
  };
  request.upload.onload = () => { bar.removeAttribute("value"); words.textContent = "reading it"; };
  request.onload = () => {
    let answer = {};
    try { answer = JSON.parse(request.responseText); } catch { /* the answer of a proxy is no JSON */ }
    if (request.status === 401) return location.reload();
    if (request.status >= 300) return refuse(answer.title ?? `Status ${request.status}`, spoken(answer.detail ?? ""));
    say("The graph was read.");
    return location.assign(`/graphs/${encodeURIComponent(answer.id)}`);
  };
  request.onerror = () => refuse("The service did not answer", "The file was not sent to its end.");
  request.onabort = () => { over(); say("Stopped."); };
  stop.onclick = () => request.abort();
  request.open("POST", address(form, file.name));
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.send(file);
}

let target = null;

/** Make a form upload files that are dropped or chosen. */
export function receive(form) {
  form.elements.file.addEventListener("change", () => {
    if (form.elements.file.files[0]) send(form, form.elements.file.files[0]);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  if (!target) {
    let depth = 0;
    const page = document.documentElement;
    const holds = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    const leave = () => { depth = 0; page.classList.remove("over"); };
    page.addEventListener("dragenter", (event) => { if (holds(event)) { depth += 1; page.classList.add("over"); } });
    page.addEventListener("dragleave", () => { depth -= 1; if (depth <= 0) leave(); });
    page.addEventListener("dragover", (event) => { if (holds(event)) event.preventDefault(); });
    page.addEventListener("drop", (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      leave();
      const [file] = event.dataTransfer.files;
      if (file) send(target, file);
    });
  }
  target = form;
}

/** Make a button upload a table, and put its id into the field of the form. */
export function choose(button) {
  const field = document.getElementById(button.dataset.choose);
  const words = document.getElementById(field.getAttribute("aria-describedby"));
  const told = (text, wrong) => { words.textContent = text; words.classList.toggle("why", wrong); };
  button.hidden = false;
  button.addEventListener("click", () => {
    const picker = Object.assign(document.createElement("input"), { type: "file" });
    picker.addEventListener("change", async () => {
      const [file] = picker.files;
      if (!file) return;
      told(`Sending ${file.name}`, false);
      try {
        const response = await fetch(`/v1/tables?holds=${button.dataset.holds}`, {
          method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" },
        });
        if (response.status === 401) return location.reload();
        const answer = await response.json();
        if (!response.ok) return told(`${answer.title}. ${answer.detail ?? ""}`, true);
        field.value = answer.id;
        told(`${file.name}: ${answer.rows.toLocaleString("en")} rows, ${answer.columns.join(", ")}`, false);
        return field.dispatchEvent(new Event("input", { bubbles: true }));
      } catch {
        return told("The service did not answer; the file was not sent to its end.", true);
      }
    });
    picker.click();
  });
}
