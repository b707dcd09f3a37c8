// The map as a picture that can be moved.  Drawing a hundred thousand edges takes longer than a frame, so while the view
// moves, the last picture is moved instead; the edges are drawn again once the view rests.

import { Colours, Overlay, drawEdges, drawVertices, scheme } from "./cartography.js";

const QUICK = 30;    // edges that take fewer milliseconds are drawn again even while the view moves
const IDLE = 140;    // milliseconds without a move before the edges are drawn again
const MARGIN = 0.05; // margin around the network, as a share of the canvas
const BUTTONS = 52;  // pixels of the buttons at the right
const SCALE = 26;    // pixels of the scale at the bottom

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** A view of a network in its colours, with an overlay. */
export class Picture {
  constructor(canvas, network, overlay) {
    Object.assign(this, { canvas, network, overlay, took: 0, own: false });
    this.context = canvas.getContext("2d");
    this.base = document.createElement("canvas");
    this.ink = this.base.getContext("2d");
    this.look = scheme(canvas);
    this.colours = new Colours(new Float64Array(network.n).fill(NaN), []);
    this.colours.sort(network.edges);
    this.resize();
    new ResizeObserver(() => { this.resize(); this.draw(true); }).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.look = scheme(canvas);
      this.draw(true);
      canvas.dispatchEvent(new Event("look"));
    });
  }

  get extent() { return Math.min(this.canvas.width, this.canvas.height) / this.view.scale; }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    const ratio = Math.min(2, devicePixelRatio || 1);
    const kept = this.view && this.own ? { x: this.view.x, y: this.view.y, extent: this.extent } : null;
    for (const one of [this.canvas, this.base]) {
      one.width = Math.max(1, Math.round(box.width * ratio));
      one.height = Math.max(1, Math.round(box.height * ratio));
    }
    this.ratio = ratio;
    this.drawn = null;
    if (kept) this.lookAt(kept);
    else this.fit();
  }

  /** Show the whole network, beside the buttons and above the scale. */
  fit() {
    const [left, low, right, high] = this.network.box;
    const [beside, below] = [BUTTONS * this.ratio, (this.network.metres ? SCALE : 0) * this.ratio];
    const [wide, tall] = [(this.canvas.width - beside) * (1 - 2 * MARGIN), (this.canvas.height - below) * (1 - 2 * MARGIN)];
    const scale = Math.max(wide, 1) / (right - left || 1);
    this.whole = Math.min(scale, Math.max(tall, 1) / (high - low || 1));
    this.view = {
      x: (left + right) / 2 + beside / 2 / this.whole, y: (low + high) / 2 - below / 2 / this.whole, scale: this.whole, ratio: this.ratio,
    };
  }

  lookAt({ x, y, extent }) {
    this.fit();
    this.own = true;
    this.view = { x, y, scale: Math.min(this.canvas.width, this.canvas.height) / extent, ratio: this.ratio };
    this.keep();
  }

  /** Limit the view: a mean edge is at most as wide as the canvas, and the network stays in sight. */
  keep() {
    const [left, low, right, high] = this.network.box;
    const { view } = this;
    view.scale = clamp(view.scale, this.whole / 2, Math.max(this.whole, this.canvas.width / (this.network.length || 1)));
    const [across, up] = [this.canvas.width / 3 / view.scale, this.canvas.height / 3 / view.scale];
    view.x = clamp(view.x, left - across, right + across);
    view.y = clamp(view.y, low - up, high + up);
  }

  /** Zoom by a factor about a place of the canvas. */
  zoom(factor, at = [this.canvas.width / 2, this.canvas.height / 2]) {
    const [x, y] = this.place(at);
    this.view.scale *= factor;
    this.keep();
    const [u, v] = this.place(at);
    this.move(x - u, y - v);
  }

  /** Move the middle by units of the plane. */
  move(x, y) {
    this.own = true;
    this.view = { ...this.view, x: this.view.x + x, y: this.view.y + y };
    this.keep();
    this.draw();
  }

  place([x, y]) {
    const { view, canvas } = this;
    return [view.x + (x - canvas.width / 2) / view.scale, view.y - (y - canvas.height / 2) / view.scale];
  }

  spot(vertex) {
    const { view, canvas, network } = this;
    return [(network.x[vertex] - view.x) * view.scale + canvas.width / 2, (view.y - network.y[vertex]) * view.scale + canvas.height / 2];
  }

  colour(row, classes) {
    this.colours = new Colours(row, classes);
    this.colours.sort(this.network.edges);
    this.draw(true);
  }

  draw(anew = false) {
    this.stale ||= anew;
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.paint(); });
  }

  /** Draw the edges; while the view moves, draw the last picture of them at its new place instead. */
  paint() {
    const { canvas, context, view, base, drawn } = this;
    const moved = !drawn || drawn.x !== view.x || drawn.y !== view.y || drawn.scale !== view.scale;
    if (!drawn || this.stale || (moved && this.took < QUICK)) this.render();
    else if (moved) {
      clearTimeout(this.due);
      this.due = setTimeout(() => { this.stale = true; this.paint(); }, IDLE);
    }
    const from = this.drawn;
    const grown = view.scale / from.scale;
    const [wide, high] = [canvas.width * grown, canvas.height * grown];
    context.fillStyle = this.look.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(
      base, (from.x - view.x) * view.scale + (canvas.width - wide) / 2, (view.y - from.y) * view.scale + (canvas.height - high) / 2,
      wide, high,
    );
    this.overlay(new Overlay(context, this.network, view, this.look));
  }

  render() {
    clearTimeout(this.due);
    const began = performance.now();
    drawEdges(this.ink, this.network, this.view, this.colours, this.look);
    if (this.network.dots) drawVertices(this.ink, this.network, this.view, this.colours, this.look);
    this.took = performance.now() - began;
    this.stale = false;
    this.drawn = { ...this.view };
  }
}
