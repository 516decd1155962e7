// The logit lens: what each decoder layer would predict, and the norms along the residual stream.
// data: a LogitLens of the Python API; `first`, the step that is chosen at first, may be added
import { h, replace } from "../lib/element.js";
import { onTheme } from "../lib/draw.js";
import { direction, tokenList, tokenName, tokenText } from "../lib/tokens.js";
import { counted, percent } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { layerGrid } from "./layer-grid.js";
import { normsPart } from "./norms.js";

const QUANTITIES = { token: "Likeliest token", rank: "Rank", probability: "Probability" };
const LAST_RANK = Math.log(1000); // beyond that, every rank has the same shade

// The layers of a step from which on the produced token ranks first, up to the last -> index of the first of them, or null
export function decidedAt(layers, step) {
  let found = null;
  for (let layer = layers.length - 1; layer >= 0 && layers[layer][step].rank === 1; layer--) found = layer;
  return found;
}

export function lensView(root, data, live = null) {
  const { layers } = data, last = layers.length - 1, produced = tokenList(data.pieces), read = tokenList(data.read_pieces);
  const names = layers.map((_, layer) => layerName(layer)).reverse(); // the last layer on top, as in the paper's figure
  const decided = produced.map((_, step) => decidedAt(layers, step)), layerOf = (row) => last - row;
  let quantity = "token";

  const controls = h("div", { class: "segmented", role: "group", "aria-label": "What a cell shows" }, Object.entries(QUANTITIES).map(([name, title]) =>
    h("button", { type: "button", "data-quantity": name, "aria-pressed": name === quantity, onclick: () => show(name) }, title)));
  const detail = h("div", { class: "lens-detail", "aria-live": "polite" });
  const grid = layerGrid({ label: "Logit lens: layers × produced tokens", rows: names, columns: produced.length, head: columnHead, cell, onPoint: drawDetail });
  grid.strip.dir = direction(data.output || data.source);
  const table = behind(() => dataTable({ caption: "Rank and probability of the produced token, and the likeliest token of each layer", columns: ["Produced", ...names.slice().reverse()],
    rows: produced.map((token, step) => [tokenName(token), ...layers.map((steps) => `${steps[step].rank} · ${percent(steps[step].probability)} · ${pieceName(steps[step].top[0][1])}`)]) }));
  const norms = normsPart(data);

  replace(root, h("div", { class: "view lens" },
    h("section", { "aria-label": "Logit lens" }, h("h2", {}, "Logit lens: when does the model know?"),
      h("p", { class: "hint" }, "Each row applies the model's output layer to the residual stream after one decoder layer, as if it were the last. Shade: how likely that layer finds the token that was produced. ",
        h("span", { class: "marked-sample" }, "Framed"), ": from here on it ranks first."),
      h("p", {}, summary()), h("div", { class: "controls tight" }, controls),
      h("div", { class: "lens-split" }, grid.element, detail),
      h("p", { class: "caution" }, "Layers in the middle were not trained to be read this way: their predictions are a hint, not a measurement."), table.element),
    norms.element));
  grid.choose(0, Math.max(0, Math.min(produced.length - 1, data.first ?? 0)));
  const stop = onTheme(() => { grid.draw(); norms.draw(); });

  function columnHead(step) {
    const token = produced[step];
    return [h("small", {}, "after ", tokenText(read[step])), h("b", {}, token.starts || token.special ? null : h("span", { class: "joint" }, "·"), tokenText(token))];
  }

  function cell(row, step) {
    const layer = layerOf(row), { rank, probability, top } = layers[layer][step];
    const text = quantity === "token" ? pieceName(top[0][1]) : quantity === "rank" ? rank.toLocaleString("en") : percent(probability);
    return { text, shade: quantity === "rank" ? Math.max(0, 1 - Math.log(rank) / LAST_RANK) : probability, mark: decided[step] === layer };
  }

  function summary() {
    const first = decided.filter((layer) => layer !== null && layer < last).length, certain = decided.filter((layer) => layer !== null).length;
    return `${counted(certain, "token")} of ${produced.length} rank first at the end; ${first ? `${first} of them before the last layer` : "none of them before the last layer"}.`;
  }

  function drawDetail(row, step, chosen = false) {
    const layer = layerOf(row), own = layers[layer]?.[step];
    if (!own) return;
    replace(detail,
      h("h3", {}, `After ${layerName(layer) === "embedding" ? "the embedding" : layerName(layer)}, where `, tokenText(produced[step]), " is produced"),
      h("p", { class: "hint" }, `Rank ${own.rank.toLocaleString("en")}, ${percent(own.probability)}; entropy ${own.entropy.toFixed(2)} bits.`),
      h("ol", { class: "lens-top" }, own.top.map(([token, piece, share]) => lensBar(pieceToken(piece), share, token === own.token))),
      h("h3", {}, "Through the layers"),
      h("ol", { class: "lens-top" }, layers.map((steps, index) => lensBar({ text: layerName(index), starts: true, special: null }, steps[step].probability, index === layer, `rank ${steps[step].rank.toLocaleString("en")}`)).reverse()));
    if (chosen) live?.changed();
  }

  function show(name) {
    quantity = Object.hasOwn(QUANTITIES, name) ? name : "token";
    for (const button of controls.children) button.setAttribute("aria-pressed", button.dataset.quantity === quantity);
    grid.draw();
    live?.changed();
  }

  return {
    state: () => ({ quantity, at: grid.at(), ...norms.state() }),
    restore(state) {
      show(state.quantity);
      if (Array.isArray(state.at) && state.at.length === 2 && state.at.every(Number.isInteger)) grid.choose(...state.at, false);
      norms.restore(state);
    },
    destroy() { stop(); grid.destroy(); norms.destroy(); root.replaceChildren(); },
  };
}

const layerName = (layer) => (layer ? `layer ${layer}` : "embedding");
const pieceToken = (piece) => tokenList([piece])[0];
const pieceName = (piece) => tokenName(pieceToken(piece));

function lensBar(token, share, chosen, note = "") {
  return h("li", { class: chosen ? "chosen" : "" }, h("span", { class: "name" }, tokenText(token)),
    h("span", { class: "gauge after", "aria-hidden": "true" }, h("span", { style: { "inline-size": `${(share * 100).toFixed(2)}%` } })), h("span", { class: "amount" }, percent(share), note ? h("small", {}, ` ${note}`) : null));
}
