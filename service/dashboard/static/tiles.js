// Tiles of a result store, read through the Zarr endpoint: a tile is its entries, little-endian, row by row, and their
// CRC-32C.  A tile with another checksum is an error and is never shown.

const ARRAYS = { uint16: Uint16Array, int32: Int32Array, float32: Float32Array, float64: Float64Array };

const TABLE = new Uint32Array(256).map((_, n) => {
  for (let k = 0; k < 8; k += 1) n = n & 1 ? (n >>> 1) ^ 0x82f63b78 : n >>> 1;
  return n >>> 0;
});

export function crc32c(bytes) {
  let crc = 0xffffffff;
  for (let k = 0; k < bytes.length; k += 1) crc = TABLE[(crc ^ bytes[k]) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** Return whether tiles of this store can be read here: a known type, no compression, a little-endian processor. */
export function readable(manifest) {
  const little = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
  return little && manifest.dtype in ARRAYS && !["zstd"].includes(manifest.compression);
}

export class Tiles {
  constructor(job, manifest, most = 48) {
    this.base = `/v1/jobs/${encodeURIComponent(job)}/zarr/distances/c`;
    this.type = ARRAYS[manifest.dtype];
    [this.height, this.width] = manifest.tiles.shape;
    this.bytes = this.height * this.width * this.type.BYTES_PER_ELEMENT;
    this.most = most;
    this.there = new Map();
  }

  /** Return the entries of a tile; undefined if it is not loaded. */
  peek(i, j) {
    return this.there.get(`${i}/${j}`);
  }

  /** Fetch a tile; throws an error if it cannot be fetched or is damaged. */
  async get(i, j, signal) {
    const key = `${i}/${j}`;
    if (this.there.has(key)) return this.there.get(key);
    const response = await fetch(`${this.base}/${key}`, { signal });
    if (!response.ok) throw new Error(`tile ${key}: status ${response.status}`);
    const data = await response.arrayBuffer();
    const body = new Uint8Array(data, 0, this.bytes);
    if (data.byteLength !== this.bytes + 4 || crc32c(body) !== new DataView(data).getUint32(this.bytes, true)) {
      throw new Error(`tile ${key} is damaged`);
    }
    const tile = new this.type(data, 0, this.height * this.width);
    this.there.set(key, tile);
    if (this.there.size > this.most) this.there.delete(this.there.keys().next().value);
    return tile;
  }
}
