// The map of a result: the network coloured by the distance from a vertex, a route, classes, and a link that shares the
// view.  Source and target are those of the form beside it, whose answer says in words what the map shows.

import { say } from "./apsp.js";
import { roundBelow } from "./cartography.js";
import { fetchNetwork } from "./network.js";
import { Picture } from "./picture.js";

const SWIFT = 250;   // colours follow the pointer if a row and its picture take fewer milliseconds
const NEAR = 40;     // pixels from the pointer to the vertex that it means, at most

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });
const about = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en");

class NetworkMap {
  constructor(part, network) {
    this.part = part;
    this.network = network;
    this.canvas = part.querySelector("canvas");
    this.readout = part.querySelector("#map-read");
    this.facts = part.querySelector("#map-facts");
    this.follow = part.querySelector("[data-follow]");
    this.form = document.getElementById("query");
    this.ends = { source: -1, target: -1 };
    this.route = null;
    this.classes = [];
    this.cursor = null;
    this.pointers = new Map();
    this.picture = new Picture(this.canvas, network, (overlay) => this.overlay(overlay));
    this.restore();
    this.row = null;
    this.listen();
    this.ready = this.take(true);
  }

  get role() { return this.part.querySelector("[name=role]:checked").value; }

  unit(distance, format = digits) { return `${format.format(distance)}${this.network.unit ? ` ${this.network.unit}` : ""}`; }

  name(vertex) { return String(this.network.labels[vertex]); }

  overlay(overlay) {
    const { source, target } = this.ends;
    if (this.route) overlay.route(this.route.vertices);
    const marked = [[target, false], [source, true]].filter(([vertex]) => vertex >= 0 && this.network.may.any[vertex]);
    for (const [vertex, filled] of marked) overlay.mark(vertex, filled);
    const along = (this.route?.vertices ?? []).filter((v) => this.network.may.any[v]);
    for (const [vertex, first] of marked) overlay.name(vertex, this.name(vertex), first ? along.slice(0, 5) : along.slice(-5));
    if (this.cursor) {
      overlay.cursor(this.cursor.vertex, this.cursor.place);
      if (!marked.some(([vertex]) => vertex === this.cursor.vertex)) overlay.name(this.cursor.vertex, this.name(this.cursor.vertex));
    }
    if (this.network.metres) overlay.scale();
  }

  /** Show the source and target of the form: the colours, the route, and a description in words. */
  async take(first = false) {
    const { network, form, cursor } = this;
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    for (const role of ["source", "target"]) this.ends[role] = network.vertex(form.elements[role].value);
    const { source, target } = this.ends;
    this.route = null;
    try {
      const began = performance.now();
      if (first && source >= 0) this.readout.textContent = `Reading the distances from ${this.name(source)} …`;
      this.row = source < 0 ? null : await network.row(source, signal);
      if (signal.aborted) return;
      this.recolour();
      if (first && this.row) {
        this.picture.paint();
        const quick = performance.now() - began < SWIFT && !this.part.hasAttribute("data-prepared");
        this.follow.checked = quick && matchMedia("(hover: hover)").matches;
      }
      if (this.row && target >= 0) this.route = await network.route(source, target, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.readout.textContent = error.message;
      this.picture.draw();
      return;
    }
    if (signal.aborted) return;
    this.facts.textContent = this.row ? this.reach() : "";
    if (this.cursor && this.cursor !== cursor) {  // the pointer has moved while the answer was loading
      this.chased = undefined;
      this.point();
    } else this.tell();
    this.picture.draw();
  }

  recolour(row = this.row) {
    if (row) this.picture.colour(row, this.classes);
    this.legend();
  }

  /** Describe in words what the map shows. */
  tell() {
    const { ends: { source, target }, route } = this;
    if (!this.row) this.readout.textContent = "Select a vertex: the map shows how far all others are from it.";
    else if (target < 0 || !route) this.readout.textContent = `From ${this.name(source)}`;
    else if (route.length === null) this.readout.textContent = `There is no path from ${this.name(source)} to ${this.name(target)}.`;
    else {
      const arcs = route.vertices.length - 1;
      this.readout.textContent = `${this.name(source)} → ${this.name(target)}: ${this.unit(route.length)} over ${whole.format(arcs)} ${arcs === 1 ? "arc" : "arcs"}`;
    }
  }

  /** Return in words how many vertices the source reaches, and which is farthest. */
  reach() {
    const { network, ends: { source } } = this;
    let [reached, farthest] = [0, source];
    this.row.forEach((distance, vertex) => {
      if (Number.isNaN(distance)) return;
      reached += 1;
      if (!(distance <= this.row[farthest])) farthest = vertex;
    });
    const far = reached > 1 ? `; the farthest is ${this.name(farthest)}, ${this.unit(this.row[farthest])} away` : "";
    return `From ${this.name(source)}, ${whole.format(reached)} of ${whole.format(network.targets?.length ?? network.n)} vertices are reached${far}.`;
  }

  /** Describe the vertex under the cursor. */
  tellCursor(row, from) {
    const to = this.cursor.vertex;
    const distance = row?.[to];
    if (!row) this.readout.textContent = this.name(to);
    else if (from === to) this.readout.textContent = `From ${this.name(to)}`;
    else this.readout.textContent = `${this.name(from)} → ${this.name(to)}: ${Number.isNaN(distance) ? "no path" : this.unit(distance)}`;
  }

  legend() {
    const { part, picture: { colours, look } } = this;
    const swatch = (colour, words) => {
      const item = document.createElement("li");
      const box = document.createElement("i");
      box.style.background = colour;
      item.append(box, words);
      return item;
    };
    const list = part.querySelector("[data-legend]");
    const shown = Boolean(this.row);
    list.replaceChildren();
    part.querySelector("[data-suggest]").textContent = this.classes.length ? "Without classes" : "In classes";
    part.querySelector("[data-scale]").hidden = !shown || this.classes.length > 0;
    if (!shown) return;
    if (this.classes.length) {
      list.append(...this.classes.map((bound, k) => swatch(colours.shade(k, look), `up to ${this.unit(bound, about)}`)));
      list.append(swatch(look.line, "farther, or no path"));
      return;
    }
    const ramp = part.querySelector("[data-ramp]").getContext("2d");
    for (let k = 0; k < 256; k += 1) {
      ramp.fillStyle = look.shade(k / 255);
      ramp.fillRect(k, 0, 1, 1);
    }
    part.querySelector("[data-near]").textContent = this.unit(colours.least, about);
    part.querySelector("[data-far]").textContent = this.unit(colours.most, about);
    list.append(swatch(look.line, "no path"));
  }

  /** Make a vertex the source or the target, and ask as the form does. */
  select(vertex) {
    const { form, role } = this;
    form.elements[role].value = this.name(vertex);
    if (role === "source") this.part.querySelector("[name=role][value=target]").checked = true;
    this.cursor = this.cursor && { vertex };
    if (form.elements.source.value && form.elements.target.value) form.requestSubmit();
    else {
      const asked = new URLSearchParams(new FormData(form));
      history.replaceState(null, "", `${location.pathname}?${asked}${location.hash}`);
      this.take();
    }
  }

  /** Colour by the vertex under the pointer, one row at a time. */
  async chase() {
    if (this.chasing || !this.follow.checked || !this.cursor || !this.network.may.source[this.cursor.vertex]) return;
    const { vertex } = this.cursor;
    if (vertex === this.chased) return;
    this.chasing = true;
    const row = await this.network.row(vertex).catch(() => null);
    this.chasing = false;
    if (!row || !this.cursor || !this.follow.checked) return;
    this.chased = vertex;
    this.recolour(row);
    if (this.ends.target < 0) this.tellCursor(row, vertex);
    else {
      const distance = row[this.ends.target];
      this.readout.textContent = `${this.name(vertex)} → ${this.name(this.ends.target)}: ${Number.isNaN(distance) ? "no path" : this.unit(distance)}`;
    }
    this.chase();
  }

  /** Forget the vertex under the pointer: the colours are those of the source again. */
  leave() {
    if (!this.cursor) return;
    this.cursor = null;
    if (this.chased !== undefined) this.recolour();
    this.chased = undefined;
    this.tell();
    this.picture.draw();
  }

  /** Restore the view and the classes from the part of the address after the #. */
  restore() {
    const said = new URLSearchParams(location.hash.slice(1));
    const [x, y, extent] = (said.get("map") ?? "").split(",").map(Number);
    if (Number.isFinite(x) && Number.isFinite(y) && extent > 0) this.picture.lookAt({ x, y, extent });
    this.setClasses(said.get("classes") ?? "");
  }

  /** Write the view into the address. */
  note() {
    clearTimeout(this.noting);
    this.noting = setTimeout(() => {
      const { view, own, extent } = this.picture;
      const said = [];
      if (own) {  // the view is rounded, so that its link gives exactly this view
        const [x, y, wide] = [view.x, view.y, extent].map((number) => Number(number.toPrecision(7)));
        this.picture.lookAt({ x, y, extent: wide });
        this.picture.draw();
        said.push(`map=${x},${y},${wide}`);
      }
      if (this.classes.length) said.push(`classes=${this.classes.join(",")}`);
      history.replaceState(null, "", `${location.pathname}${location.search}${said.length ? `#${said.join("&")}` : ""}`);
    }, 250);
  }

  /** Set the bounds of classes from a text; return whether they ascend. */
  setClasses(text) {
    const field = this.part.querySelector("[data-classes]");
    const bounds = text.split(/[,;\s]+/).filter(Boolean).map(Number);
    const right = bounds.every((bound, k) => Number.isFinite(bound) && bound > (k ? bounds[k - 1] : 0));
    field.setAttribute("aria-invalid", String(!right));
    if (!right) return false;
    this.classes = bounds;
    if (document.activeElement !== field) field.value = bounds.join(", ");
    return true;
  }

  /** Return bounds of about five classes, in round numbers. */
  suggested() {
    const most = this.picture.colours.most;
    const step = roundBelow(most / 4);
    return Array.from({ length: clamp(Math.floor(most / step), 1, 8) }, (_, k) => Number(((k + 1) * step).toPrecision(6)));
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * this.canvas.width, ((event.clientY - box.top) / box.height) * this.canvas.height];
  }

  /** Return the vertex nearest to a place of the canvas, and the place; null if no vertex is near. */
  meant(place, role) {
    const vertex = this.network.nearest(...this.picture.place(place), role);
    if (vertex < 0) return null;
    const spot = this.picture.spot(vertex);
    return Math.hypot(spot[0] - place[0], spot[1] - place[1]) > NEAR * this.picture.ratio ? null : { vertex, place };
  }

  hover(event) {
    const found = this.meant(this.at(event), this.follow.checked ? "source" : "target");
    if (!found) { this.leave(); return; }
    this.cursor = found;
    this.point();
    this.picture.draw();
  }

  /** If the colours follow the pointer, colour by the vertex under it, else describe this vertex. */
  point() {
    if (this.follow.checked) this.chase();
    else this.tellCursor(this.row, this.ends.source);
  }

  drag(event, before) {
    const [now, { picture }] = [this.at(event), this];
    const { scale } = picture.view;
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]) || 1;
      picture.zoom(apart(now) / apart(before), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
      picture.move((before[0] - now[0]) / 2 / scale, (now[1] - before[1]) / 2 / scale);
      this.moved = Infinity;
    } else {
      this.moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (this.moved > 5 * picture.ratio) picture.move((before[0] - now[0]) / scale, (now[1] - before[1]) / scale);
    }
    this.pointers.set(event.pointerId, now);
    this.note();
  }

  listen() {
    const { canvas, picture } = this;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      picture.zoom(2 ** (-event.deltaY / 240), this.at(event));
      this.note();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.at(event));
      this.moved = this.pointers.size > 1 ? Infinity : 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = this.pointers.get(event.pointerId);
      if (before) this.drag(event, before);
      else if (event.pointerType === "mouse") this.hover(event);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("click", (event) => {
      if (this.moved > 5 * picture.ratio) return;
      const found = this.meant(this.at(event), this.role);
      if (found) this.select(found.vertex);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.leave());
    canvas.addEventListener("look", () => this.legend());
    this.form.addEventListener("submit", () => this.take());
    addEventListener("hashchange", () => { this.restore(); this.recolour(); });
    this.listenToTools();
  }

  listenToTools() {
    const { part, picture } = this;
    part.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => this.zoom(Number(button.dataset.zoom))));
    part.querySelector("[data-classes]").addEventListener("input", (event) => {
      if (this.setClasses(event.target.value)) { this.recolour(); this.note(); }
    });
    part.querySelector("[data-suggest]").addEventListener("click", () => {
      this.setClasses(this.classes.length ? "" : this.suggested().join(","));
      this.recolour();
      this.note();
      say(this.classes.length ? `Classes up to ${this.classes.map((bound) => this.unit(bound, about)).join(", ")}` : "Continuous colours");
    });
    this.follow.addEventListener("change", () => this.leave());
    part.querySelector("[data-share]").addEventListener("click", async () => {
      await new Promise((done) => { this.note(); setTimeout(done, 300); });
      const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
      say(copied ? "The link was copied." : "The link was not copied; the address of this page is the link.");
      part.querySelector("[data-shared]").textContent = copied ? "Copied." : "The address of this page is the link.";
    });
    picture.draw(true);
  }

  zoom(factor) {
    const { picture } = this;
    if (factor) picture.zoom(factor, this.cursor ? picture.spot(this.cursor.vertex) : undefined);
    else {
      picture.own = false;
      picture.fit();
      picture.draw(true);
    }
    this.note();
  }

  /** Handle a key: arrows go from vertex to vertex, with Shift they move the map. */
  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const direction = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    const { picture } = this;
    if (direction && event.shiftKey) {
      const step = picture.extent / 8;
      picture.move(direction[0] * step, direction[1] * step);
      this.note();
    } else if (direction) this.walk(direction);
    else if (event.key === "+" || event.key === "=") this.zoom(2);
    else if (event.key === "-") this.zoom(0.5);
    else if (event.key === "0") this.zoom(0);
    else if (event.key === "Escape") this.leave();
    else if (event.key === "Enter" && this.cursor && this.network.may[this.role][this.cursor.vertex]) this.select(this.cursor.vertex);
    else return;
    event.preventDefault();
  }

  walk(direction) {
    const { picture, network } = this;
    const step = picture.extent / 24;
    if (this.cursor) {
      const { vertex } = this.cursor;
      const place = [network.x[vertex] + direction[0] * step, network.y[vertex] + direction[1] * step];
      const next = network.nearest(...place, this.role, vertex, direction);
      if (next >= 0) this.cursor = { vertex: next };
    } else {
      const from = this.ends.source >= 0 && network.may.any[this.ends.source] ? this.ends.source : -1;
      const vertex = from >= 0 && network.may[this.role][from] ? from : network.nearest(picture.view.x, picture.view.y, this.role);
      if (vertex < 0) return;
      this.cursor = { vertex };
    }
    const [x, y] = picture.spot(this.cursor.vertex);
    const { width, height } = this.canvas;
    if (x < 0 || y < 0 || x > width || y > height) {
      picture.move(network.x[this.cursor.vertex] - picture.view.x, network.y[this.cursor.vertex] - picture.view.y);
      this.note();
    }
    this.tellCursor(this.row, this.ends.source);
    picture.draw();
  }
}

/** Start a map; the promise is kept once the map has its first colours. */
export async function map(part) {
  const read = part.querySelector("#map-read");
  try {
    await new NetworkMap(part, await fetchNetwork(part.dataset.map)).ready;
  } catch (error) {
    read.textContent = `The map cannot be shown: ${error.message}`;
  }
}
