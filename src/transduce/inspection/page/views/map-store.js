// The attention maps behind a view: layers that are fetched once, means over heads and layers, tokens joined to words.
import { decodeArray } from "../lib/arrays.js";
import { tokenList, wordList } from "../lib/tokens.js";

export const MEAN = 0; // as a head: the mean of a layer's heads; as a layer: of all layers

// What names the rows and columns of each kind: the sequences of a recorded text.
const SIDES = { encoder: ["source", "source"], decoder: ["produced", "read"], cross: ["produced", "source"], causal: ["source", "source"] };

// data.kinds[kind]: { layers, heads, rows, columns, arrays? }; data.words: { source, produced, read }, each the word of a piece.
export class MapStore {
  constructor(data, live) {
    this.data = data;
    this.live = live;
    this.kept = new Map(); // "kind.layer" -> Promise of { shape, data }, "kind.layer.head" -> Promise of Float32Array
  }

  // A layer of a kind, all heads: Promise of { shape: [heads, rows, columns], data }
  layer(kind, layer) {
    return this.once(`${kind}.${layer}`, () => {
      const { arrays } = this.data.kinds[kind];
      return arrays ? decodeArray(arrays[layer - 1]) : this.live.layer(kind, layer);
    });
  }

  once(key, make) {
    if (!this.kept.has(key)) {
      const made = make();
      this.kept.set(key, made);
      made.catch(() => this.kept.delete(key)); // a failed request may succeed later
    }
    return this.kept.get(key);
  }

  // One head's map, or a mean: Promise of Float32Array, rows × columns
  map(kind, layer, head) {
    return this.once(`${kind}.${layer}.${head}`, async () => {
      const { layers, rows, columns } = this.data.kinds[kind], size = rows.length * columns.length;
      if (layer !== MEAN && head !== MEAN) return (await this.layer(kind, layer)).data.subarray((head - 1) * size, head * size);
      const chosen = layer === MEAN ? Array.from({ length: layers }, (_, i) => i + 1) : [layer];
      const all = await Promise.all(chosen.map((one) => this.layer(kind, one))), mean = new Float32Array(size);
      const share = size / all.reduce((sum, { data }) => sum + data.length, 0);
      for (const { data } of all) for (let from = 0; from < data.length; from += size) for (let i = 0; i < size; i++) mean[i] += data[from + i] * share;
      return mean;
    });
  }

  // Names of rows and columns: tokens, or words where `joined`. Each has from and to, its tokens.
  names(kind, joined) {
    const { rows, columns } = this.data.kinds[kind], [rowSide, columnSide] = SIDES[kind], words = this.data.words ?? {};
    const tokens = [tokenList(rows, words[rowSide]), tokenList(columns, words[columnSide])];
    return tokens.map((one, at) => this.named(one, at ? columnSide : rowSide, joined));
  }

  named(one, side, joined) {
    const text = this.data.subject !== "translation" ? null : side === "source" ? this.data.source : this.data.output;
    return joined ? wordList(one, text) : one.map((token) => ({ ...token, from: token.index, to: token.index + 1 }));
  }
}

// A map of words: attention to a word is the sum over its tokens, attention from a word their mean (Clark et al. 2019).
export function joinedMap(map, columns, rowGroups, columnGroups) {
  const wide = columnGroups.length, found = new Float32Array(rowGroups.length * wide);
  rowGroups.forEach((row, r) => columnGroups.forEach((column, c) => {
    let sum = 0;
    for (let i = row.from; i < row.to; i++) for (let j = column.from; j < column.to; j++) sum += map[i * columns + j];
    found[r * wide + c] = sum / (row.to - row.from);
  }));
  return found;
}

// The largest weight of a map; of a model whose first token collects what no other wants, that column may be left out.
export function largestWeight(map, columns, skipFirst = false) {
  let most = 1e-6;
  for (let i = 0; i < map.length; i++) if (map[i] > most && !(skipFirst && i % columns === 0)) most = map[i];
  return most;
}

// The largest weight of each patch, so that thin lines survive in a picture of at most `side` dots.
export function reducedMap(map, rows, columns, side) {
  const high = Math.min(rows, side), wide = Math.min(columns, side), values = new Float32Array(high * wide);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
    const at = Math.floor((r * high) / rows) * wide + Math.floor((c * wide) / columns);
    if (map[r * columns + c] > values[at]) values[at] = map[r * columns + c];
  }
  return { values, high, wide };
}

export const rooted = (values) => values.map(Math.sqrt); // pictures show square roots: small weights stay visible

export function headName(layer, head) {
  if (layer === MEAN) return "mean of all heads";
  return `layer ${layer}, ${head === MEAN ? "mean of its heads" : `head ${head}`}`;
}
