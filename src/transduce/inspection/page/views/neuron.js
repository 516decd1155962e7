// The arithmetic of one head at one query (Vig 2019): q, each k, their product channel by channel, score, softmax.
import { h, replace, whenSeen } from "../lib/element.js";
import { colours, onTheme, paintDots } from "../lib/draw.js";
import { fixed, signed, weightText } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { tokenList, tokenName, tokenText } from "../lib/tokens.js";

const largestOf = (rows) => rows.reduce((most, row) => row.reduce((sofar, value) => Math.max(sofar, Math.abs(value)), most), 1e-9);

// data: NeuronView.to_json of Python. Nothing here needs a server.
export function neuronView(root, data) {
  const columns = tokenList(data.columns), [row] = tokenList([data.row_piece]);
  const scales = { query: largestOf([data.query]), key: largestOf(data.key), product: largestOf(data.product) };
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a channel to see its numbers.");
  const strips = []; // every strip that was drawn, to be drawn again in another theme
  const observer = whenSeen((canvas) => { const strip = strips[Number(canvas.dataset.strip)]; strip.seen = true; paint(strip); });

  function strip(values, scale, label, say) {
    const canvas = h("canvas", { class: "strip", role: "img", "aria-label": label, "data-strip": String(strips.length) });
    strips.push({ canvas, values, scale, seen: false });
    observer.observe(canvas);
    canvas.addEventListener("pointermove", (event) => {
      const channel = Math.floor((event.offsetX / canvas.clientWidth) * values.length);
      if (channel >= 0 && channel < values.length) say(channel);
    });
    return canvas;
  }

  function paint({ canvas, values, scale }) { // one dot per channel, which the style sheet widens
    paintDots(canvas, values.map((value) => (value / scale + 1) / 2), 1, values.length, 1, colours().diverging);
  }

  const say = (index) => (channel) => replace(readout, `Channel ${channel + 1}: q `, h("b", {}, fixed(data.query[channel], 3)),
    index === null ? "" : [" × k ", h("b", {}, fixed(data.key[index][channel], 3)), " = ", h("b", {}, signed(data.product[index][channel], 3)), " at ", tokenText(columns[index])]);

  const most = Math.max(...data.weight, 1e-9);
  const bar = (weight) => { const made = h("i", { class: "bar", "aria-hidden": "true" }); made.style.setProperty("width", `${(weight / most) * 100}%`); return made; };
  const lines = columns.map((token, index) => h("tr", { class: data.allowed[index] ? "" : "masked" },
    h("th", { scope: "row" }, tokenText(token)),
    h("td", { class: "wide" }, strip(data.key[index], scales.key, `key of ${token.text}`, say(index))),
    h("td", { class: "wide" }, strip(data.product[index], scales.product, `query times key of ${token.text}`, say(index))),
    h("td", {}, data.allowed[index] ? signed(data.score[index], 2) : "masked"),
    h("td", { class: "softmax" }, weightText(data.weight[index]), bar(data.weight[index]))));
  const biased = data.bias.some((value) => value !== 0);
  const table = behind(() => dataTable({ caption: "Scores and weights", columns: ["key", "Σ q × k", "bias", "score", "weight"],
    rows: columns.map((token, index) => [h("bdi", {}, tokenName(token)), fixed(data.product[index].reduce((sum, value) => sum + value, 0), 4), fixed(data.bias[index], 4),
      data.allowed[index] ? fixed(data.score[index], 4) : "masked", weightText(data.weight[index])]) }), "Scores as a table");
  replace(root, h("div", { class: "view neuron" },
    h("p", {}, h("b", {}, `${data.kind} attention, layer ${data.layer}, head ${data.head}`), ", query of ", h("b", {}, tokenText(row))),
    h("p", { class: "formula" }, `score = ${data.scale === 1 ? "" : `${fixed(data.scale, 3)} × `}Σ (q × k)${biased ? " + position" : ""},  weight = softmax(score)`),
    readout,
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Keys, products and scores" }, h("table", { class: "arithmetic" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "key of"), h("th", { scope: "col" }, "k"), h("th", { scope: "col" }, "q × k"), h("th", { scope: "col" }, "score"), h("th", { scope: "col" }, "softmax")),
        h("tr", { class: "query" }, h("th", { scope: "row" }, "q of ", tokenText(row)), h("td", { class: "wide" }, strip(data.query, scales.query, "query", say(null))), h("td", {}), h("td", {}), h("td", {}))),
      h("tbody", {}, lines))),
    h("p", { class: "legend" }, "negative", legendStrip(strips, observer), "positive"),
    table.element));
  const stop = onTheme(() => { for (const one of strips) if (one.seen) paint(one); });
  return { state: () => ({}), restore: () => {}, destroy: () => { stop(); observer.disconnect(); root.replaceChildren(); } };
}

function legendStrip(strips, observer) {
  const canvas = h("canvas", { "aria-hidden": "true", "data-strip": String(strips.length) });
  strips.push({ canvas, values: Array.from({ length: 41 }, (_, i) => i / 20 - 1), scale: 1, seen: false });
  observer.observe(canvas);
  return h("span", { class: "legend-strip" }, canvas);
}

// Inside the attention view: the arithmetic of the row that is kept, once it is asked for.
export function arithmeticOf(root, place, request, saved = null) {
  const { kind, layer, head, row } = place;
  if (saved && !request && saved.kind === kind && saved.layer === layer && saved.head === head && saved.row === row) return neuronView(root, saved);
  if (!request) return replace(root);
  if (!layer || !head) return replace(root, h("p", { class: "hint" }, "Select one head to see how it computes this row: q, k, their product, softmax."));
  const open = async () => {
    root.dataset.open = "yes";
    try {
      const data = await request(place);
      if (root.dataset.place === JSON.stringify(place)) neuronView(root, data);
    } catch (error) { replace(root, h("p", { class: "failed" }, error.message)); }
  };
  root.dataset.place = JSON.stringify(place);
  if (root.dataset.open === "yes") return open();
  return replace(root, h("button", { type: "button", onclick: open }, "Show the arithmetic: q, k, q × k, softmax"));
}
