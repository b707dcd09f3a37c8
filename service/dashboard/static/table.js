// The table of a result: its links and its form exchange the part in place; without scripts they lead to a page.

import { exchange, fetchPage, say } from "./apsp.js";

async function show(part, url) {
  part.setAttribute("aria-busy", "true");
  const page = await fetchPage(url).catch(() => null);
  part.removeAttribute("aria-busy");
  if (!page?.getElementById(part.id)) return say("The table cannot be read now.");
  exchange(page, [part.id]);
  return say(page.querySelector("#rows-of-table")?.textContent ?? "");
}

/** Start the scripts of a part that shows a table. */
export function table(part) {
  part.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-part]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(part, link.href);
  });
  const form = part.querySelector("form[data-part]");
  const draw = () => show(part, `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`);
  form?.addEventListener("submit", (event) => { event.preventDefault(); draw(); });
  form?.addEventListener("change", draw);
}
