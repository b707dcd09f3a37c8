// Draws a network on a canvas.  Edges are sorted by their colour once for each row of distances; drawing a view then
// takes one stroke for each colour.

// matplotlib's magma, as in `apsp plot --map`; near distances contrast most with the paper
const MAGMA = [[0, 0, 4], [11, 9, 36], [32, 17, 75], [59, 15, 112], [87, 21, 126], [114, 31, 129], [140, 41, 129], [168, 50, 125], [196, 60, 117], [222, 73, 104], [241, 96, 93], [250, 127, 94], [254, 159, 109], [254, 191, 132], [253, 222, 160], [252, 253, 191]];
const PARTS = { light: [0.08, 0.84], dark: [0.98, 0.37] };
const SHADES = 48;

const about = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const font = (size) => `600 ${size}px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif`;

/** Return the largest of 1, 2 and 5 times a power of ten that is not above a positive number. */
export function roundBelow(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].find((step) => step * power <= value * (1 + 1e-12)) * power;
}

/** Return the colours of a page: paper, ink, lines, route, and shades from near to far. */
export function scheme(element) {
  const style = getComputedStyle(element);
  const named = (name) => style.getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [near, far] = PARTS[dark ? "dark" : "light"];
  const shade = (share) => {
    const at = (near + (far - near) * share) * (MAGMA.length - 1);
    const low = Math.min(MAGMA.length - 2, Math.floor(at));
    return `rgb(${MAGMA[low].map((part, k) => Math.round(part + (MAGMA[low + 1][k] - part) * (at - low))).join(" ")})`;
  };
  return { paper: named("--paper"), ink: named("--ink"), dim: named("--dim"), line: named("--street"), route: named("--accent"), shade };
}

/** The colours of distances: continuous shades, or one for each class and none beyond the last. */
export class Colours {
  constructor(row, classes) {
    let [least, most] = [0, 0];
    for (const distance of row) {
      if (distance < least) least = distance;
      if (distance > most) most = distance;
    }
    Object.assign(this, { row, classes, least, most: most > least ? most : least + 1 });
    this.count = classes.length || SHADES;
  }

  /** Return the number of the shade of a distance, 0 for the nearest; -1 for no path, or beyond the last class. */
  of(distance) {
    if (Number.isNaN(distance)) return -1;
    if (this.classes.length) return this.classes.findIndex((bound) => distance <= bound);
    return clamp(Math.floor(((distance - this.least) / (this.most - this.least)) * SHADES), 0, SHADES - 1);
  }

  shade(number, colours) { return number < 0 ? colours.line : colours.shade(this.count > 1 ? number / (this.count - 1) : 0); }

  /** Sort edges into the order in which they are drawn, far ones first; keep where each shade begins. */
  sort(edges) {
    const shades = new Int16Array(edges.length / 2);
    const starts = new Int32Array(this.count + 2);
    for (let e = 0; e < shades.length; e += 1) {
      const shade = this.of((this.row[edges[2 * e]] + this.row[edges[2 * e + 1]]) / 2);
      shades[e] = shade < 0 ? 0 : this.count - shade;  // 0 is drawn first
      starts[shades[e] + 1] += 1;
    }
    for (let k = 0; k <= this.count; k += 1) starts[k + 1] += starts[k];
    const next = starts.slice();
    this.order = new Int32Array(shades.length);
    for (let e = 0; e < shades.length; e += 1) this.order[next[shades[e]]++] = e;
    this.starts = starts;
  }
}

/** Draw all edges that a view shows; ``view`` has the middle in the plane, and the pixels of a unit of the plane. */
export function drawEdges(context, network, view, colours, look) {
  const { width, height } = context.canvas;
  const { edges } = network;
  const [px, py] = [new Float32Array(network.n), new Float32Array(network.n)];
  for (let v = 0; v < network.n; v += 1) {
    px[v] = (network.x[v] - view.x) * view.scale + width / 2;
    py[v] = (view.y - network.y[v]) * view.scale + height / 2;
  }
  context.fillStyle = look.paper;
  context.fillRect(0, 0, width, height);
  context.lineCap = "round";
  context.lineWidth = clamp((network.length * view.scale) / 6, 0.7, 4.5) * view.ratio;
  for (let part = 0; part + 1 < colours.starts.length; part += 1) {
    context.strokeStyle = colours.shade(part ? colours.count - part : -1, look);
    context.beginPath();
    for (let k = colours.starts[part]; k < colours.starts[part + 1]; k += 1) {
      const e = 2 * colours.order[k];
      const [a, b] = [edges[e], edges[e + 1]];
      if ((px[a] < 0 && px[b] < 0) || (py[a] < 0 && py[b] < 0) || (px[a] > width && px[b] > width) || (py[a] > height && py[b] > height)) continue;
      context.moveTo(px[a], py[a]);
      context.lineTo(px[b], py[b]);
    }
    context.stroke();
  }
}

/** Draw all vertices as dots, far ones first. */
export function drawVertices(context, network, view, colours, look) {
  const { width, height } = context.canvas;
  const shades = Array.from(network.x.keys(), (v) => colours.of(colours.row[v]));
  const far = (v) => (shades[v] < 0 ? Infinity : shades[v]);
  const order = [...network.x.keys()].filter((v) => network.may.any[v]).sort((a, b) => far(b) - far(a));
  const size = clamp((network.length * view.scale) / 5, 2, 5) * view.ratio;
  context.strokeStyle = look.paper;
  context.lineWidth = view.ratio;
  for (const v of order) {
    context.beginPath();
    context.arc((network.x[v] - view.x) * view.scale + width / 2, (view.y - network.y[v]) * view.scale + height / 2, size, 0, 2 * Math.PI);
    context.fillStyle = shades[v] < 0 ? look.dim : colours.shade(shades[v], look);
    context.fill();
    context.stroke();
  }
}

/** What lies above the edges: the route, its ends with their names, the vertex under the cursor, the scale. */
export class Overlay {
  constructor(context, network, view, look) {
    Object.assign(this, { context, network, view, look });
    this.spot = (v) => [
      (network.x[v] - view.x) * view.scale + context.canvas.width / 2, (view.y - network.y[v]) * view.scale + context.canvas.height / 2,
    ];
  }

  route(vertices) {
    const { context, look, view, network } = this;
    const there = vertices.filter((v) => network.may.any[v]);
    if (there.length < 2) return;
    context.lineJoin = context.lineCap = "round";
    for (const [colour, wide] of [[look.paper, 7], [look.route, 3.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide * view.ratio;
      context.beginPath();
      for (const v of there) context.lineTo(...this.spot(v));
      context.stroke();
    }
  }

  mark(vertex, filled) {
    const { context, look, view } = this;
    context.beginPath();
    context.arc(...this.spot(vertex), 6 * view.ratio, 0, 2 * Math.PI);
    context.fillStyle = filled ? look.route : look.paper;
    context.strokeStyle = filled ? look.paper : look.route;
    context.lineWidth = 2.5 * view.ratio;
    context.fill();
    context.stroke();
  }

  /** Write a name beside a vertex, on the side where there is more of the map, and not on the part of the route there. */
  name(vertex, words, route = []) {
    const { context, look, view: { ratio } } = this;
    const { width, height } = context.canvas;
    const [x, y] = this.spot(vertex);
    if (x < 0 || y < 0 || x > width || y > height) return;
    const text = words.length > 28 ? `${words.slice(0, 27)}…` : words;
    context.font = font(13 * ratio);
    const [wide, high] = [context.measureText(text).width + 12 * ratio, 22 * ratio];
    const left = clamp(x > width / 2 ? x - wide - 11 * ratio : x + 11 * ratio, 2, Math.max(2, width - wide - 2));
    const away = route.reduce((sum, v) => sum + this.spot(v)[1] - y, 0); // above 0: the route leads down
    const below = y <= height * 0.15 || (away < 0 && y < height * 0.85);
    const top = clamp(below ? y + 4 * ratio : y - high - 4 * ratio, 2, height - high - 2);
    context.globalAlpha = 0.92;
    context.fillStyle = look.paper;
    context.strokeStyle = look.line;
    context.lineWidth = ratio;
    context.beginPath();
    context.roundRect(left, top, wide, high, 5 * ratio);
    context.fill();
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = look.ink;
    context.textBaseline = "middle";
    context.fillText(text, left + 6 * ratio, top + high / 2 + ratio / 2);
  }

  /** Mark the vertex that the cursor means, with a line to it from the place of the cursor. */
  cursor(vertex, place) {
    const { context, look, view: { ratio } } = this;
    const [x, y] = this.spot(vertex);
    for (const [colour, wide] of [[look.paper, 5], [look.ink, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide * ratio;
      context.beginPath();
      context.arc(x, y, 9 * ratio, 0, 2 * Math.PI);
      if (place && Math.hypot(place[0] - x, place[1] - y) > 12 * ratio) {
        const angle = Math.atan2(place[1] - y, place[0] - x);
        context.moveTo(x + 9 * ratio * Math.cos(angle), y + 9 * ratio * Math.sin(angle));
        context.lineTo(...place);
      }
      context.stroke();
    }
  }

  /** Draw a bar of a round number of metres or kilometres. */
  scale() {
    const { context, look, view: { ratio, scale } } = this;
    const { width, height } = context.canvas;
    const metres = roundBelow((width / scale) / 4);
    const [right, bottom] = [width - 12 * ratio, height - 12 * ratio];
    const left = right - metres * scale;
    const text = metres >= 1000 ? `${about.format(metres / 1000)} km` : `${about.format(metres)} m`;
    for (const [colour, wide] of [[look.paper, 5], [look.dim, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide * ratio;
      context.lineCap = "butt";
      context.beginPath();
      context.moveTo(left, bottom);
      context.lineTo(right, bottom);
      context.stroke();
    }
    context.font = font(11 * ratio);
    context.textBaseline = "bottom";
    context.lineWidth = 3 * ratio;
    const at = [(left + right - context.measureText(text).width) / 2, bottom - 4 * ratio];
    context.strokeStyle = look.paper;
    context.strokeText(text, ...at);
    context.fillStyle = look.dim;
    context.fillText(text, ...at);
  }
}
