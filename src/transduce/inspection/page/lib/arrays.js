// Arrays of numbers: as they come from the server (float16) and as they stand in a saved page (base64).

let table = null; // every float16 as a float32; 65,536 values made once

function float16Table() {
  if (table) return table;
  table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 0) table[bits] = sign * fraction * 2 ** -24;
    else if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
    else table[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return table;
}

// float16, little-endian -> Float32Array
export function fromFloat16(buffer) {
  const values = float16Table(), view = new DataView(buffer), found = new Float32Array(buffer.byteLength >> 1);
  for (let i = 0; i < found.length; i++) found[i] = values[view.getUint16(i * 2, true)];
  return found;
}

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

export function base64(buffer) {
  const bytes = new Uint8Array(buffer), parts = [];
  for (let i = 0; i < bytes.length; i += 32768) parts.push(String.fromCharCode(...bytes.subarray(i, i + 32768)));
  return btoa(parts.join(""));
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// An array of a page or an answer -> { shape, data: Float32Array }. Its values are one of: `data` (decoded already),
// `float16` (base64, or an ArrayBuffer as fetched), `roots8` (base64 of square roots in 255 levels, for very large
// maps); `deflated` says that the bytes are compressed.
export async function decodeArray(array) {
  const { shape } = array;
  if (array.data) return { shape, data: array.data };
  if (array.float16 instanceof ArrayBuffer) return { shape, data: fromFloat16(array.float16) };
  let bytes = bytesOf(array.float16 ?? array.roots8);
  if (array.deflated) bytes = await inflated(bytes);
  if (array.float16 !== undefined) return { shape, data: fromFloat16(bytes.buffer) };
  return { shape, data: Float32Array.from(bytes, (root) => (root / 255) ** 2) };
}

// Float32Array -> ArrayBuffer of float16, little-endian, rounded to the nearest
export function toFloat16(values) {
  const buffer = new ArrayBuffer(values.length * 2), view = new DataView(buffer);
  for (let i = 0; i < values.length; i++) view.setUint16(i * 2, half(values[i]), true);
  return buffer;
}

function half(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0, size = Math.abs(value);
  if (Number.isNaN(size)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | Math.round(size * 2 ** 24);
  const exponent = Math.floor(Math.log2(size)), fraction = Math.round((size / 2 ** exponent - 1) * 1024);
  return sign | (((exponent + 15) << 10) + fraction);
}
