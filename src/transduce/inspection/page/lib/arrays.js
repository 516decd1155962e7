// Arrays of numbers: as they come from the server and as they stand in a saved page (base64).

const SHARE_STEPS = 65520; // of a share: 16-bit integers, exact to 1e-5

// 16-bit shares, little-endian -> Float32Array
export function fromShares16(buffer) {
  const view = new DataView(buffer), found = new Float32Array(buffer.byteLength >> 1);
  for (let i = 0; i < found.length; i++) found[i] = view.getUint16(i * 2, true) / SHARE_STEPS;
  return found;
}

// Numbers from 0 to 1 -> ArrayBuffer of 16-bit shares, little-endian, rounded to the nearest
export function toShares16(values) {
  const buffer = new ArrayBuffer(values.length * 2), view = new DataView(buffer);
  for (let i = 0; i < values.length; i++) view.setUint16(i * 2, Math.round(Math.max(0, Math.min(1, values[i])) * SHARE_STEPS), true);
  return buffer;
}

function fromFloat32(buffer) {
  const view = new DataView(buffer), found = new Float32Array(buffer.byteLength >> 2);
  for (let i = 0; i < found.length; i++) found[i] = view.getFloat32(i * 4, true);
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
// `shares16` (base64, or an ArrayBuffer as fetched), `float32` (base64), `roots8` (base64 of square roots in 255 levels, for
// very large maps); `deflated` says that the bytes are compressed.
export async function decodeArray(array) {
  const { shape } = array;
  if (array.data) return { shape, data: array.data };
  let bytes = bytesOf(array.shares16 ?? array.float32 ?? array.roots8);
  if (array.deflated) bytes = await inflated(bytes);
  if (array.shares16 !== undefined) return { shape, data: fromShares16(bytes.buffer) };
  if (array.float32 !== undefined) return { shape, data: fromFloat32(bytes.buffer) };
  return { shape, data: Float32Array.from(bytes, (root) => (root / 255) ** 2) };
}

export const isArray = (value) => Array.isArray(value.shape) && ["data", "shares16", "float32", "roots8"].some((name) => value[name] !== undefined);

// An array as it was fetched or decoded -> JSON for a saved page
export function plainArray({ shape, shares16, float32 }) {
  if (float32 !== undefined) return { shape, float32 };
  return { shape, shares16: shares16 instanceof ArrayBuffer ? base64(shares16) : shares16 };
}
