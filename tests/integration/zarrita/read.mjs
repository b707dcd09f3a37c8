// Reads a result store with zarrita, as a web page would: node read.mjs URL KEY TILE OUT
// OUT gets the entries of "distances" in row order; what was asked and found goes to standard output as JSON.
import { writeFileSync } from "node:fs";
import * as zarr from "zarrita";

const [url, key, tile, out] = process.argv.slice(2);
const requests = [];
const looked = new Set();

// A page may send only the headers that the preflight allows, and see only those that the answer exposes.
async function recorded(request) {
  const response = await fetch(request);
  requests.push({ method: request.method, headers: [...request.headers.keys()], status: response.status });
  const seen = new Proxy(response.headers, {
    get(headers, name) {
      if (name !== "get") return Reflect.get(headers, name);
      return (wanted) => (looked.add(wanted.toLowerCase()), headers.get(wanted));
    },
  });
  return new Proxy(response, {
    get(answer, name) {
      if (name === "headers") return seen;
      const value = Reflect.get(answer, name);
      return typeof value === "function" ? value.bind(answer) : value;
    },
  });
}

const options = { fetch: recorded, overrides: { headers: { Authorization: `Bearer ${key}` } } };
try {
  const store = new zarr.FetchStore(url, options);
  const group = await zarr.open(store, { kind: "group" });
  const array = await zarr.open(group.resolve("distances"), { kind: "array" });
  const labels = await zarr.get(await zarr.open(group.resolve("target"), { kind: "array" }));
  const { data, shape } = await zarr.get(array);
  writeFileSync(out, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  const path = `/${tile}`;
  const asked = await store.getRange(path, { suffixLength: 4 });
  const suffix = await new zarr.FetchStore(url, { ...options, useSuffixRequest: true }).getRange(path, { suffixLength: 4 });
  const range = await store.getRange(path, { offset: 8, length: 16 });
  console.log(JSON.stringify({
    shape, dtype: array.dtype, unreachable: group.attrs.unreachable, labels: [...labels.data].map(Number),
    asked: [...asked], suffix: [...suffix], range: [...range], requests, looked: [...looked],
  }));
} catch (error) {
  console.log(JSON.stringify({ error: String(error), requests }));
}
