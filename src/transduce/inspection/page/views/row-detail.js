// One row of a map in numbers: what it attends to, which heads do so most, and what the model predicted there.
import { h, replace, unseen } from "../lib/element.js";
import { percent, weightText } from "../lib/numbers.js";
import { tokenText } from "../lib/tokens.js";
import { choiceList } from "./alternatives.js";
import { headName } from "./map-store.js";

const SHOWN_TOKENS = 6;

// Of each column: mean weight of all heads, the largest, and the head that has it.
async function strongest(store, kind, row) {
  const { layers, heads, rows, columns } = store.data.kinds[kind], wide = columns.length, size = rows.length * wide;
  const found = columns.map((_, column) => ({ column, mean: 0, most: 0, layer: 1, head: 1 }));
  for (let layer = 1; layer <= layers; layer++) {
    const { data } = await store.layer(kind, layer);
    for (let head = 0; head < heads; head++) for (const one of found) {
      const weight = data[head * size + row * wide + one.column];
      one.mean += weight / (layers * heads);
      if (weight > one.most) Object.assign(one, { most: weight, layer, head: head + 1 });
    }
  }
  return found.filter((one) => one.most > 0);
}

function chosenOf(found) { // those that some head attends to most, and those that all do
  const by = (key) => [...found].sort((a, b) => b[key] - a[key]);
  const kept = new Set([...by("most").slice(0, SHOWN_TOKENS), ...by("mean").slice(0, SHOWN_TOKENS)]);
  return by("mean").filter((one) => kept.has(one));
}

function weightBar(weight) {
  const bar = h("i", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("width", `${Math.min(100, weight * 100)}%`);
  return [weightText(weight), bar];
}

// choose(layer, head) opens another head.
export function rowDetail(store, { choose }) {
  const element = h("div", { class: "row-detail" });
  let shown = "";

  async function show(kind, row, names) {
    const key = `${kind} ${row}`;
    shown = key;
    const found = chosenOf(await strongest(store, kind, row));
    if (shown !== key) return; // another row was chosen meanwhile
    const table = h("table", { class: "attended" },
      h("caption", {}, "Attends to, over all heads of this kind"),
      h("thead", {}, h("tr", {}, ["token", "mean", "strongest", "head"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, found.map((one) => h("tr", {},
        h("th", { scope: "row" }, tokenText(names[1][one.column]), h("small", {}, ` ${one.column + 1}`)),
        h("td", {}, weightBar(one.mean)), h("td", {}, weightBar(one.most)),
        h("td", {}, h("button", { type: "button", class: "quiet", title: headName(one.layer, one.head), onclick: () => choose(one.layer, one.head) }, `${one.layer}.${one.head}`, unseen(headName(one.layer, one.head))))))));
    replace(element, h("div", { class: "scroll" }, table), predictionAt(store.data, kind, row));
  }

  return { element, show, clear: () => { shown = ""; replace(element); } };
}

// What was predicted at a row: steps belong to the rows of what is written, to masked tokens, and to every row of a prompt.
export function predictionAt(data, kind, row) {
  const { steps = [], subject } = data;
  const own = kind === "encoder" && subject !== "text" ? null : steps.find((step) => step.position === row);
  if (!own) return null;
  const title = subject === "translation" ? "Predicted at this step" : subject === "text" ? "Predicted for this mask" : "Predicted after this token";
  return h("div", { class: "prediction" }, h("h3", {}, title), h("p", { class: "hint" }, `Entropy ${own.entropy.toFixed(2)} bits.`,
    own.rank ? ` What followed has rank ${own.rank} and ${percent(own.probability)}.` : ""), choiceList(own, own.token));
}
