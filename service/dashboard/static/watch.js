// Follows an open job: server-sent events say that something has changed, and the service renders it.  If no events
// arrive, the page is fetched at intervals.

import { exchange, fetchPage, say } from "./apsp.js";

const BETWEEN = 600;  // milliseconds between two fetches of the page, at least
const POLL = 3000;

/** Follow the job of this page to its end. */
export function follow() {
  const shown = document.querySelector("#job[data-open]");
  if (!shown) return;
  const id = shown.dataset.job;
  let events = null;
  let lastEvent = 0;
  let looking = false;
  let wanted = false;
  let over = false;

  async function look() {
    if (over || looking) { wanted = true; return; }
    looking = true;
    wanted = false;
    const page = await fetchPage(location.href).catch(() => null);
    const then = page?.getElementById("job");
    if (then && !then.hasAttribute("data-open")) {
      over = true;
      stop();
      exchange(page, ["job"]);
      document.title = page.title;
      say(document.title);
      return;
    }
    if (then) { exchange(page, ["facts", "live", "actions"]); document.title = page.title; }
    setTimeout(() => { looking = false; if (wanted) look(); }, BETWEEN);
  }

  function append(lines) {
    const log = document.getElementById("lines");
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
    log.append(lines + "\n");
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  function start() {
    if (events || over || document.hidden) return;
    if (!window.EventSource) return;
    events = new EventSource(`/v1/jobs/${encodeURIComponent(id)}/events`);
    let behind = Number(document.getElementById("lines").dataset.offset);
    events.addEventListener("progress", (event) => {
      lastEvent = Date.now();
      const { progress } = JSON.parse(event.data);
      document.getElementById("bar").value = progress;
      document.querySelector("[data-percent]").textContent = `${Math.round(100 * progress)} %`;
      look();
    });
    events.addEventListener("phase", () => { lastEvent = Date.now(); look(); });
    events.addEventListener("log", (event) => {
      lastEvent = Date.now();
      // a new stream sends the log from its beginning: lines that the page already has are skipped
      const offset = Number(event.lastEventId.split(".")[1]);
      if (offset <= behind) return;
      behind = offset;
      document.getElementById("lines").dataset.offset = offset;
      append(event.data);
    });
    events.addEventListener("done", () => { lastEvent = Date.now(); look(); });
  }

  // browsers open few connections to one host, so a hidden page closes its own
  function stop() {
    events?.close();
    events = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else { start(); look(); }
  });
  const timer = setInterval(() => {
    if (over) clearInterval(timer);
    else if (!document.hidden && Date.now() - lastEvent > POLL) look();
  }, POLL);
  start();
}
