// The matrix as a picture that can be zoomed: a wide view shows a sample that the service takes, a close view whole tiles.
// It shows entries of the matrix, never means of entries; the line below the picture says which.

import { Tiles, readable } from "./tiles.js";

const NEAR = 24 << 20;  // bytes of tiles that are fetched for one view, at most
const IDLE = 180;       // milliseconds without a move before more entries are fetched
// the colours of service/views/colours.py: the same on a plot
const STOPS = [[255, 247, 214], [176, 220, 186], [79, 176, 162], [32, 122, 140], [35, 74, 112], [38, 28, 66]];

/** 256 colours, from near to far. */
const RAMP = Array.from({ length: 256 }, (_, k) => {
  const at = (k / 255) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const [r, g, b] = STOPS[low].map((c, n) => Math.round(c + (STOPS[low + 1][n] - c) * (at - low)));
  return (255 << 24) | (b << 16) | (g << 8) | r;
});

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const NONE = 0;         // transparent: the hatching under the picture is seen, which differs from the colour of every distance
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });
const about = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en");

async function ask(job, query, signal) {
  const response = await fetch(`/v1/jobs/${encodeURIComponent(job)}/sample?${new URLSearchParams(query)}`, { signal });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

/** The entries that the service sampled from a rectangle; says which sampled row or column stands for a position. */
class Sampled {
  constructor(answer, row, rows, column, columns) {
    Object.assign(this, { answer, row, rows, column, columns });
    this.high = answer.rows.length;
    this.wide = answer.columns.length;
  }

  rowOf(i) { return i < this.row || i >= this.row + this.rows ? -1 : Math.floor(((i - this.row) * this.high) / this.rows); }

  columnOf(j) {
    return j < this.column || j >= this.column + this.columns ? -1
      : Math.floor(((j - this.column) * this.wide) / this.columns);
  }
}

class Heat {
  constructor(part) {
    this.part = part;
    this.job = part.dataset.heat;
    this.measured = part.dataset.measured ? ` ${part.dataset.measured}` : "";
    this.canvas = part.querySelector("#heat");
    this.context = this.canvas.getContext("2d");
    this.readout = part.querySelector("#heat-read");
    this.what = part.querySelector("#heat-what");
    this.near = null;
    this.pointers = new Map();
    this.cursor = null;
  }

  async begin() {
    const manifest = await (await fetch(`/v1/jobs/${encodeURIComponent(this.job)}/results`)).json();
    [this.rows, this.columns] = manifest.shape;
    this.none = Number(manifest.unreachable ?? Infinity);
    this.tiles = readable(manifest) ? new Tiles(this.job, manifest) : null;
    this.far = new Sampled(await ask(this.job, { size: 384 }), 0, this.rows, 0, this.columns);
    this.part.classList.add("known");  // only now may the hatching be seen, which means "no path"
    const known = this.far.answer.distances.flat().filter((d) => d !== null);
    this.least = known.reduce((a, b) => Math.min(a, b), 0);
    // a sample may have missed the farthest pair, which the service knows
    this.most = Number(this.part.dataset.diameter) || known.reduce((a, b) => Math.max(a, b), this.least) || 1;
    this.shown = [this.least, this.most];  // the distances that have the lightest and the darkest colour
    this.drawRamp();
    this.tellColours();
    this.fit();
    this.listen();
    new ResizeObserver(() => this.fit(true)).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  drawRamp() {
    const context = this.part.querySelector("#ramp").getContext("2d");
    const image = context.createImageData(256, 1);
    new Uint32Array(image.data.buffer).set(RAMP);
    context.putImageData(image, 0, 0);
  }

  /** Fit the whole matrix, or with ``keep`` the same view, into the present size of the canvas. */
  fit(keep = false) {
    const box = this.canvas.getBoundingClientRect();
    const scale = Math.min(2, devicePixelRatio || 1);
    const [width, height] = [Math.max(1, Math.round(box.width * scale)), Math.max(1, Math.round(box.height * scale))];
    if (keep && this.canvas.width === width && this.canvas.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    if (!keep || !this.view) this.view = { row: 0, column: 0, rows: this.rows, columns: this.columns };
    this.changed();
  }

  /** Zoom by a factor about a point, given as shares of the canvas; the view stays inside the matrix. */
  zoom(factor, x = 0.5, y = 0.5) {
    const { view } = this;
    const rows = clamp(view.rows / factor, Math.min(this.rows, 4), this.rows);
    const columns = clamp(view.columns / factor, Math.min(this.columns, 4), this.columns);
    this.move(view.row + y * (view.rows - rows), view.column + x * (view.columns - columns), rows, columns);
  }

  move(row, column, rows = this.view.rows, columns = this.view.columns) {
    this.view = { row: clamp(row, 0, this.rows - rows), column: clamp(column, 0, this.columns - columns), rows, columns };
    this.changed();
  }

  changed() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
    clearTimeout(this.due);
    this.due = setTimeout(() => this.look(), IDLE);
  }

  /** Return what the view covers, in whole rows and columns. */
  covered() {
    const { row, column, rows, columns } = this.view;
    const [i, j] = [Math.floor(row), Math.floor(column)];
    return { i, j, rows: Math.min(this.rows, Math.ceil(row + rows)) - i, columns: Math.min(this.columns, Math.ceil(column + columns)) - j };
  }

  /** Fetch the entries that this view lacks: its tiles if they are few, else a sample of it. */
  async look() {
    this.asking?.abort();
    const signal = (this.asking = new AbortController()).signal;
    const { i, j, rows, columns } = this.covered();
    try {
      if (this.tiles) {
        const { height, width, bytes } = this.tiles;
        const wanted = [];
        for (let a = Math.floor(i / height); a * height < i + rows; a += 1) {
          for (let b = Math.floor(j / width); b * width < j + columns; b += 1) wanted.push([a, b]);
        }
        if (wanted.length * bytes <= NEAR && wanted.length <= this.tiles.most) {
          for (const [a, b] of wanted) await this.tiles.get(a, b, signal);
          this.spread();  // draws only when all tiles are here, so that no seam between tiles and a sample is seen
          this.tell(rows, columns, "every entry, from whole tiles");
          return;
        }
      }
      if (rows < this.rows || columns < this.columns) {
        this.near = new Sampled(await ask(this.job, { row: i, rows, column: j, columns, size: 384 }, signal), i, rows, j, columns);
      }
      this.spread();
      const shown = rows < this.rows || columns < this.columns ? this.near : this.far;
      this.tell(rows, columns, shown.answer.complete ? "every entry"
        : `a sample: ${whole.format(shown.high)} of ${whole.format(rows)} rows, ${whole.format(shown.wide)} of ${whole.format(columns)} columns`);
    } catch (error) {
      if (error.name !== "AbortError") this.what.textContent = `More cannot be shown: ${error.message}`;
    }
  }

  tell(rows, columns, words) {
    const { i, j } = this.covered();
    const part = rows < this.rows || columns < this.columns
      ? `rows ${whole.format(i)} to ${whole.format(i + rows - 1)}, columns ${whole.format(j)} to ${whole.format(j + columns - 1)}: ` : "";
    this.what.textContent = part + words;
  }

  /** Spread the colours over the distances that are shown, or over those of the whole matrix, and draw. */
  spread() {
    const { i, j, rows, columns } = this.covered();
    const parts = this.part.querySelector("[data-spread]").checked && (rows < this.rows || columns < this.columns);
    let [least, most] = parts ? [Infinity, -Infinity] : [this.least, this.most];
    const [high, wide] = [Math.min(rows, 256), Math.min(columns, 256)];
    for (let a = 0; parts && a < high; a += 1) {
      for (let b = 0; b < wide; b += 1) {
        const found = this.value(i + Math.floor((a * rows) / high), j + Math.floor((b * columns) / wide));
        if (found === null || found === undefined) continue;
        if (found < least) least = found;
        if (found > most) most = found;
      }
    }
    this.shown = least <= most ? [least, most] : [this.least, this.most];
    this.tellColours(parts);
    this.draw();
  }

  tellColours(parts = false) {
    const [least, most] = this.shown;
    this.part.querySelector("[data-least]").textContent = about.format(least);
    this.part.querySelector("[data-most]").textContent = `${about.format(most)}${this.measured}`;
    this.part.querySelector("[data-colours]").textContent = !parts ? "" : `of ${about.format(this.least)} to ${about.format(this.most)} in the whole matrix`;
  }

  /** Return the entry at a position: undefined if it is not loaded, null for no path. */
  value(i, j) {
    if (this.tiles) {
      const { height, width } = this.tiles;
      const tile = this.tiles.peek(Math.floor(i / height), Math.floor(j / width));
      if (tile) {
        const found = tile[(i % height) * width + (j % width)];
        return found === this.none ? null : found;
      }
    }
    for (const sampled of [this.near, this.far]) {
      if (!sampled) continue;
      const [a, b] = [sampled.rowOf(i), sampled.columnOf(j)];
      if (a >= 0 && b >= 0) return sampled.answer.distances[a][b];
    }
    return undefined;
  }

  draw() {
    const { canvas, view } = this;
    const { width, height } = canvas;
    const image = this.context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const columns = Int32Array.from({ length: width }, (_, x) => Math.min(this.columns - 1, Math.floor(view.column + ((x + 0.5) * view.columns) / width)));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const empty = dark ? 0xff2c302f : 0xffecf1f4;  // an entry that is not loaded yet
    const [least, most] = this.shown;
    const scale = 255 / (most - least || 1);
    let before = -1;
    for (let y = 0; y < height; y += 1) {
      const i = Math.min(this.rows - 1, Math.floor(view.row + ((y + 0.5) * view.rows) / height));
      if (i === before) {
        pixels.copyWithin(y * width, (y - 1) * width, y * width);
        continue;
      }
      before = i;
      let last = -1;
      let colour = empty;
      for (let x = 0; x < width; x += 1) {
        if (columns[x] !== last) {
          last = columns[x];
          const found = this.value(i, last);
          colour = found === null ? NONE : found === undefined ? empty : RAMP[clamp(Math.round((found - least) * scale), 0, 255)];
        }
        pixels[y * width + x] = colour;
      }
    }
    this.context.putImageData(image, 0, 0);
    this.drawCursor();
  }

  drawCursor() {
    if (!this.cursor || document.activeElement !== this.canvas) return;
    const { view, canvas, cursor } = this;
    const cell = [canvas.width / view.columns, canvas.height / view.rows];
    const [x, y] = [(cursor.j - view.column) * cell[0], (cursor.i - view.row) * cell[1]];
    this.context.lineWidth = 2;
    for (const [colour, more] of [["#000", 2], ["#fff", 0]]) {
      this.context.strokeStyle = colour;
      this.context.strokeRect(x - more - 1, y - more - 1, Math.max(5, cell[0]) + 2 * more + 2, Math.max(5, cell[1]) + 2 * more + 2);
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: clamp((event.clientX - box.left) / box.width, 0, 1), y: clamp((event.clientY - box.top) / box.height, 0, 1) };
  }

  point({ x, y }) {
    const { view } = this;
    this.goTo(Math.min(this.rows - 1, Math.floor(view.row + y * view.rows)), Math.min(this.columns - 1, Math.floor(view.column + x * view.columns)));
  }

  /** Describe the entry at a position: its number at once if it is loaded, the names when they arrive. */
  goTo(i, j) {
    if (this.cursor && this.cursor.i === i && this.cursor.j === j) return;
    this.cursor = { i, j };
    clearTimeout(this.naming);
    this.naming = setTimeout(async () => {
      this.named?.abort();
      this.named = new AbortController();
      try {
        const found = await ask(this.job, { row: i, rows: 1, column: j, columns: 1 }, this.named.signal);
        const distance = found.distances[0][0];
        this.cursor = { i, j, source: found.sources[0], target: found.targets[0] };
        this.readout.textContent = `${found.sources[0]} → ${found.targets[0]}: ${distance === null ? "no path" : `${digits.format(distance)}${this.measured}`}`;
      } catch (error) {
        if (error.name !== "AbortError") this.readout.textContent = "";
      }
    }, 90);
  }

  choose() {
    if (this.cursor?.source === undefined) return;
    const form = document.getElementById("query");
    form.elements.source.value = this.cursor.source;
    form.elements.target.value = this.cursor.target;
    form.requestSubmit();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const { x, y } = this.at(event);
      this.zoom(2 ** (-event.deltaY / 240), x, y);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.at(event));
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = this.at(event);
      const before = this.pointers.get(event.pointerId);
      if (!before) { this.point(now); return; }
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const apart = (a) => Math.hypot(a.x - other.x, a.y - other.y) || 1e-3;
        this.zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
        this.moved = 1;
      } else {
        this.moved += Math.hypot(now.x - before.x, now.y - before.y);
        if (this.moved > 0.01) this.move(this.view.row - (now.y - before.y) * this.view.rows, this.view.column - (now.x - before.x) * this.view.columns);
      }
      this.pointers.set(event.pointerId, now);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    }
    canvas.addEventListener("click", (event) => {
      if (this.moved > 0.01) return;
      this.point(this.at(event));
      setTimeout(() => this.choose(), 400);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.part.querySelector("[data-spread]").addEventListener("change", () => this.spread());
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
    this.part.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
      const factor = Number(button.dataset.zoom);
      if (factor) this.zoom(factor);
      else this.move(0, 0, this.rows, this.columns);
    }));
  }

  key(event) {
    const { view } = this;
    const step = (size) => Math.max(1, Math.round(size / 24));
    const now = this.cursor ?? { i: Math.floor(view.row + view.rows / 2), j: Math.floor(view.column + view.columns / 2) };
    const walk = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (walk) {
      const i = clamp(now.i + walk[0] * step(view.rows), 0, this.rows - 1);
      const j = clamp(now.j + walk[1] * step(view.columns), 0, this.columns - 1);
      this.goTo(i, j);
      this.move(clamp(view.row, i + 1 - view.rows, i), clamp(view.column, j + 1 - view.columns, j));
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      const about = [(now.j + 0.5 - view.column) / view.columns, (now.i + 0.5 - view.row) / view.rows];
      this.zoom(event.key === "-" ? 0.5 : 2, ...about.map((share) => clamp(share, 0, 1)));
    } else if (event.key === "0") this.move(0, 0, this.rows, this.columns);
    else if (event.key === "Enter") this.choose();
    else return;
    event.preventDefault();
  }
}

/** Start a heat map. */
export function heat(part) {
  new Heat(part).begin().catch((error) => {
    part.querySelector("#heat-what").textContent = `The matrix cannot be shown: ${error.message}`;
  });
}
