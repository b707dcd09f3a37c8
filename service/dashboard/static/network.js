// The network of a result, as the service packs it (docs/coordinates.md), and its rows and routes by vertex number.

const WORDS = 4;   // bytes of a number
const KEPT = 24;   // rows of distances that are cached

/** Send a request to the service; a refusal becomes an error with the message of the service. */
async function get(url, signal) {
  const response = await fetch(url, { signal });
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Error(said.detail ?? `status ${response.status}`);
}

/** Return a name as it is written in a list of vertices: in quotes, so that commas and quotes in it do no harm. */
const quoted = (name) => `"${String(name).replaceAll('"', '""')}"`;

/** Return the numbers of an npy file of floats. */
function numbers(data) {
  const size = new DataView(data).getUint16(8, true);
  const head = new TextDecoder().decode(new Uint8Array(data, 10, size));
  const body = data.slice(10 + size);
  return head.includes("<f4") ? new Float32Array(body) : new Float64Array(body);
}

export class Network {
  constructor(job, data) {
    this.base = `/v1/jobs/${encodeURIComponent(job)}`;
    const size = new DataView(data).getUint32(0, true);
    const about = JSON.parse(new TextDecoder().decode(new Uint8Array(data, WORDS, size)));
    let at = WORDS + size;
    const take = (Type, count) => {
      const found = new Type(data, at, count);
      at += count * WORDS;
      return found;
    };
    this.labels = about.labels;
    this.unit = about.unit;
    this.metres = about.system === "lonlat";
    this.dots = about.system === "layout";  // vertices are drawn, too: there is no street that shows where they are
    this.n = about.vertices;
    this.x = take(Float32Array, this.n);
    this.y = take(Float32Array, this.n);
    this.edges = take(Int32Array, 2 * about.edges);
    this.sources = about.sources === null ? null : take(Int32Array, about.sources);
    this.targets = about.targets === null ? null : take(Int32Array, about.targets);
    this.vertices = new Map(this.labels.map((label, vertex) => [String(label), vertex]));
    this.may = { source: this.side(this.sources), target: this.side(this.targets), any: this.side(null) };
    this.rows = new Map();
    this.measure();
  }

  /** Return for each vertex whether it can be selected: it has coordinates, and was solved. */
  side(selected) {
    const may = new Uint8Array(this.n);
    for (const vertex of selected ?? this.x.keys()) may[vertex] = Number.isNaN(this.x[vertex]) ? 0 : 1;
    return may;
  }

  measure() {
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let v = 0; v < this.n; v += 1) {
      if (!this.may.any[v]) continue;
      box[0] = Math.min(box[0], this.x[v]);
      box[1] = Math.min(box[1], this.y[v]);
      box[2] = Math.max(box[2], this.x[v]);
      box[3] = Math.max(box[3], this.y[v]);
    }
    this.box = box;
    let sum = 0;
    for (let e = 0; e < this.edges.length; e += 2) {
      sum += Math.hypot(this.x[this.edges[e]] - this.x[this.edges[e + 1]], this.y[this.edges[e]] - this.y[this.edges[e + 1]]);
    }
    this.length = sum / Math.max(1, this.edges.length / 2);  // the mean length of an edge
  }

  /** Return the selectable vertex nearest to a place: -1 if there is none; with a direction, only within 60 degrees of it. */
  nearest(x, y, role, from = -1, direction = null) {
    const may = this.may[role];
    let [best, least] = [-1, Infinity];
    for (let v = 0; v < this.n; v += 1) {
      if (!may[v] || v === from) continue;
      const apart = (this.x[v] - x) ** 2 + (this.y[v] - y) ** 2;
      if (apart >= least) continue;
      if (direction) {
        const [a, b] = [this.x[v] - this.x[from], this.y[v] - this.y[from]];
        if (a * direction[0] + b * direction[1] < 0.5 * Math.hypot(a, b) || (!a && !b)) continue;
      }
      [best, least] = [v, apart];
    }
    return best;
  }

  /** Return the vertex of a name as people type it; -1 if there is none. */
  vertex(name) { return this.vertices.get(name.trim()) ?? -1; }

  /** Return the distance from a vertex to each vertex, NaN where there is no path or it was not solved. */
  async row(source, signal) {
    const known = this.rows.get(source);
    if (known) return known;
    const query = new URLSearchParams({ sources: quoted(this.labels[source]), format: "npy" });
    const found = numbers(await (await get(`${this.base}/rows?${query}`, signal)).arrayBuffer());
    const row = new Float64Array(this.n).fill(NaN);
    found.forEach((distance, column) => {
      if (distance !== Infinity) row[this.targets ? this.targets[column] : column] = distance;
    });
    this.rows.set(source, row);
    if (this.rows.size > KEPT) this.rows.delete(this.rows.keys().next().value);
    return row;
  }

  /** Return the length of a shortest path, null if there is no path, and its vertices. */
  async route(source, target, signal) {
    const query = new URLSearchParams({ source: this.labels[source], target: this.labels[target] });
    const found = await (await get(`${this.base}/path?${query}`, signal)).json();
    return { length: found.length, vertices: found.vertices.map((name) => this.vertices.get(String(name))) };
  }
}

/** Fetch the network of a job's result. */
export async function fetchNetwork(job) {
  const response = await get(`/v1/jobs/${encodeURIComponent(job)}/network`);
  return new Network(job, await response.arrayBuffer());
}
