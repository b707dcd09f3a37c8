// Code of all pages.  The service renders the pages; scripts fetch them again and exchange parts, so only templates of
// the service define how anything looks, and only the service escapes text from files.

import { follow } from "./watch.js";
import { heat } from "./heat.js";
import { choose, receive } from "./upload.js";
import { table } from "./table.js";

/** Announce words to people who use a screen reader. */
export function say(words) {
  document.getElementById("said").textContent = words;
}

/** Fetch and parse the page at an address; null if that fails.  If the session is over, the login page is opened. */
export async function fetchPage(url, signal) {
  const response = await fetch(url, { headers: { Accept: "text/html" }, signal, credentials: "same-origin" });
  if (response.redirected && new URL(response.url).pathname === "/login") {
    location.reload();
    return null;
  }
  if (response.status >= 500 && response.status !== 507) return null;
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

/** By id of a part that is being pressed: the newest page, from which the part is exchanged after the release. */
const waiting = new Map();
const LET_GO = 50;  // milliseconds from a release until the click that follows it has been handled

for (const end of ["pointerup", "pointercancel", "dragend", "keyup"]) {
  addEventListener(end, () => setTimeout(() => [...waiting].forEach(([id, page]) => exchange(page, [id])), LET_GO));
}

/** Replace the parts with these ids by those of ``page``; the element with the focus keeps it.  A part that is being
    pressed is replaced after the release, because a button that is replaced in between would not be clicked. */
export function exchange(page, ids) {
  for (const id of ids) {
    const now = document.getElementById(id);
    const then = page.getElementById(id);
    waiting.delete(id);
    if (!now || !then || now.isEqualNode(then)) continue;
    if (now.matches(":active") || now.querySelector(":active")) {
      waiting.set(id, page);
      continue;
    }
    [...waiting.keys()].filter((inner) => now.querySelector(`#${inner}`)).forEach((inner) => waiting.delete(inner));
    const held = now.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...now.querySelectorAll("details")].map((item) => item.open);
    const fresh = document.importNode(then, true);
    fresh.querySelectorAll("details").forEach((item, k) => { if (open[k]) item.open = true; });
    now.replaceWith(fresh);
    if (held) document.getElementById(held)?.focus({ preventScroll: true });
    enhance(fresh);
  }
}

const AGES = [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [30 * 86400, "day", 86400]];

function tellAge(item) {
  const moment = new Date(item.dateTime);
  const seconds = (Date.now() - moment) / 1000;
  item.title = moment.toLocaleString();
  const [, unit, size] = AGES.find(([limit]) => seconds < limit) ?? [0, "", 0];
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  item.textContent = unit ? words.format(-Math.max(0, Math.round(seconds / size)), unit) : moment.toLocaleDateString();
}

/** Fetch a part again every data-poll milliseconds, while the page is visible. */
function poll(part) {
  const wait = Number(part.dataset.poll);
  const id = part.id;
  const again = async () => {
    if (!document.getElementById(id)) return;
    if (!document.hidden) {
      const page = await fetchPage(location.href).catch(() => null);
      if (page) exchange(page, [id]);
    }
    setTimeout(again, wait);
  };
  setTimeout(again, wait);
}

/** Make a form fetch the plan of a job whenever an option changes, and hide the fields that the selected kind of result
    does not have.  If the page shows neither a plan nor an error yet, the plan is fetched at once. */
function plan(form) {
  let running = null;
  let due = 0;
  const ask = async () => {
    running?.abort();
    running = new AbortController();
    const url = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`;
    const part = document.getElementById("estimate");
    part.setAttribute("aria-busy", "true");
    try {
      const page = await fetchPage(url, running.signal);
      if (page) exchange(page, ["estimate"]);
      history.replaceState(null, "", url);
    } catch (error) {
      if (error.name === "AbortError") return;
      say("The service does not answer.");
    }
    document.getElementById("estimate").removeAttribute("aria-busy");
  };
  form.addEventListener("input", () => { clearTimeout(due); due = setTimeout(ask, 500); });
  form.addEventListener("submit", (event) => {
    if (event.submitter?.formMethod === "post") {
      clearTimeout(due);
      running?.abort();
      return;
    }
    event.preventDefault();
    ask();
  });
  const result = form.elements.result;
  const sort = () => form.querySelectorAll("[data-of]").forEach((field) => {
    field.hidden = !field.dataset.of.split(" ").includes(result.value || "matrix");
    field.querySelectorAll("input, select").forEach((item) => { item.disabled = field.hidden; });
  });
  result.addEventListener("input", sort);
  sort();
  if (document.getElementById("estimate").hasAttribute("data-wanted")) ask();
}

/** Make a form exchange a part of this page by its answer; with data-first it is also sent once without a click. */
function ask(form) {
  if (form.hasAttribute("data-first")) {
    const url = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`;
    fetchPage(url).then((page) => {
      // the first answer is dropped if the form was sent meanwhile
      if (page && form.hasAttribute("data-first")) exchange(page, [form.dataset.into]);
    }).catch(() => null);
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    form.removeAttribute("data-first");
    const url = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`;
    const page = await fetchPage(url).catch(() => null);
    if (!page) return say("The service does not answer.");
    exchange(page, [form.dataset.into]);
    return history.replaceState(null, "", url + location.hash);  // the part after the # is the view of the map
  });
}

/** Load a part that takes long, from a page of its own. */
async function load(part) {
  const page = await fetchPage(part.dataset.load).catch(() => null);
  if (page) exchange(page, [part.id]);
}

function copy(button) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text.trimEnd() + "\n");
      button.textContent = "Copied";
      say("Copied.");
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

/** Make a button copy a path as rows of a table: vertex, weight of the arc to it, distance so far. */
function copyPath(button) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    try {
      const response = await fetch(button.dataset.copyPath);
      if (!response.ok) throw new Error(`status ${response.status}`);
      const { vertices, weights } = await response.json();
      let sum = 0;
      const rows = vertices.map((vertex, k) => {
        if (k) sum += weights[k - 1];
        return [vertex, k ? weights[k - 1] : "", Number(sum.toPrecision(12))].join("\t");
      });
      await navigator.clipboard.writeText(["vertex\tweight\tdistance", ...rows, ""].join("\n"));
      button.textContent = "Copied";
      say("Copied.");
    } catch (error) {
      say(`The path was not copied: ${error.message}`);
      button.textContent = "Not copied";
    }
    setTimeout(() => { button.textContent = words; }, 2000);
  });
}

/** Suggest names of vertices while a name is typed. */
function offer(field) {
  let due = 0;
  let asking = null;
  field.addEventListener("input", () => {
    clearTimeout(due);
    due = setTimeout(async () => {
      asking?.abort();
      asking = new AbortController();
      try {
        const response = await fetch(`${field.dataset.names}&like=${encodeURIComponent(field.value)}`, { signal: asking.signal });
        if (!response.ok) return;
        const options = (await response.json()).map((name) => Object.assign(document.createElement("option"), { value: name }));
        document.getElementById(field.getAttribute("list")).replaceChildren(...options);
      } catch { /* nothing is offered */ }
    }, 150);
  });
}

const polled = new Set();

/** Start the scripts of a part that is new on the page. */
export function enhance(part) {
  const all = (selector) => [...(part.matches?.(selector) ? [part] : []), ...part.querySelectorAll(selector)];
  all("time[data-ago]").forEach(tellAge);
  all("form[data-drop]").forEach(receive);
  all("form[data-plan]").forEach(plan);
  all("[data-choose]").forEach(choose);
  all("form[data-into]").forEach(ask);
  all("[data-copy]").forEach(copy);
  all("[data-copy-path]").forEach(copyPath);
  all("[data-names]").forEach(offer);
  all("[data-table]").forEach(table);
  const maps = all("[data-map]").map((item) => import("./map.js").then(({ map }) => map(item)));
  // slow parts and heat maps load after the maps: of a prepared graph they need hundreds of rows, and a map needs one
  Promise.allSettled(maps).then(() => {
    all("[data-load]").forEach(load);
    all("[data-heat]").forEach(heat);
  });
  all("form[data-ask]").forEach((form) => form.addEventListener("submit", (event) => {
    if (!confirm(form.dataset.ask)) event.preventDefault();
  }));
  all("[data-poll]").filter((item) => !polled.has(item.id)).forEach((item) => { polled.add(item.id); poll(item); });
}

/** Log in with the ticket of a printed link: it is after the #, which browsers do not send, so no log contains it. */
function useTicket() {
  const ticket = location.hash.slice(1);
  const form = document.querySelector("[data-login] form");
  if (!form || !/^[\w-]{20,}$/.test(ticket)) return;
  history.replaceState(null, "", location.pathname + location.search);
  const field = form.elements.key;
  field.required = false;
  field.name = "ticket";
  field.value = ticket;
  form.submit();
}

/** Keep the shared view of a map, which is also after the #, across the login. */
function keepView() {
  const next = document.querySelector("[data-login] [name=next]");
  if (next?.value && /^#(map|classes)=/.test(location.hash)) next.value += location.hash;
}

enhance(document);
useTicket();
keepView();
// if the link is opened in a tab that already shows the login, only the part after the # changes
addEventListener("hashchange", useTicket);
follow();
setInterval(() => document.querySelectorAll("time[data-ago]").forEach(tellAge), 20000);
