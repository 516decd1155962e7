// The mean cross-attention of all heads: what raw attention says, beside the corrected alignment.
import { toShares16 } from "../lib/arrays.js";

const known = new WeakMap(); // pass -> Promise

export function meanCross(api, pass) {
  if (!known.has(pass)) known.set(pass, computed(api, pass));
  return known.get(pass);
}

async function computed(api, pass) {
  const { layers, heads, rows, columns } = pass.attention.cross, shape = [rows.length, columns.length], size = shape[0] * shape[1];
  const data = new Float32Array(size);
  const all = await Promise.all(Array.from({ length: layers }, (_, i) => api.attention(pass, "cross", i + 1)));
  for (const { data: values } of all) for (let i = 0; i < values.length; i++) data[i % size] += values[i] / (layers * heads);
  return { shape, data, shares16: toShares16(data) };
}
