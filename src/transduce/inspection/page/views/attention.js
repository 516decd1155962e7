// Attention maps: every head as a thumbnail, one as a heat map, as lines and on the text itself, all linked.
//
// data: { source, output, subject, generated, kinds: { cross: { layers, heads, rows, columns, arrays? } }, words: { source,
//   produced, read }, steps: [{ position, token, probability, rank, entropy, top }], roles: HeadSummary.heads | null, neuron:
//   NeuronView | null, least } or { texts: [data, …] }. Layers and heads count from 1.
// live: layer(kind, layer) -> Promise of { shape, data }; neuron({ kind, layer, head, row }) -> Promise of NeuronView;
//   changed()
import { h, perFrame, replace, identity, unseen } from "../lib/element.js";
import { onTheme, paintDots } from "../lib/draw.js";
import { weightText, counted } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { shortened, tokenList, tokenName, tokenText } from "../lib/tokens.js";
import { MapStore, MEAN, headName, joinedMap, largestWeight } from "./map-store.js";
import { headGrid } from "./head-grid.js";
import { heatMap } from "./heat-map.js";
import { headLines } from "./head-lines.js";
import { tokenStrip } from "./token-strip.js";
import { rowDetail, predictionAt } from "./row-detail.js";
import { arithmeticOf } from "./neuron.js";

const KINDS = {
  encoder: ["Encoder", "A row is a source token; its columns are the source tokens that it attends to.", ["Source", "Source"]],
  cross: ["Cross", "A row is the step that produced a token; its columns are the source tokens that it attends to.", ["Produced", "Source"]],
  decoder: ["Decoder", "A row is the step that produced a token; its columns are the tokens read until then, the start first.", ["Produced", "Read"]],
  causal: ["Causal", "A row is a token; its columns are the tokens that it attends to: itself and those before it.", ["Text", "Text"]],
};
const MEASURED = "Roles are measured on sample sentences: at least half of a head’s attention, and twice that of uniform attention.";
const SAME = ["encoder", "causal"]; // kinds whose rows and columns are one text

export function attentionView(root, data, live = null) {
  return data.texts ? severalTexts(root, data.texts, live) : oneText(root, data, live);
}

function oneText(root, data, live) {
  return Object.keys(data.kinds).length ? new AttentionView(root, data, live) : predictions(root, data);
}

// A model without attention: its text, and what it predicted after each token.
function predictions(root, data) {
  const link = { row: null, column: null, set: () => {}, pin: (row) => show(row) }, strip = tokenStrip(link), place = h("div", { class: "row-detail" });
  const names = tokenList(data.pieces ?? []).map((token) => ({ ...token, from: token.index, to: token.index + 1 }));
  const show = (row) => { link.row = row; strip.light(); replace(place, predictionAt(data, null, row)); };
  replace(root, h("div", { class: "view attention" }, h("p", { class: "hint" }, "This model has no attention maps. Select a token to see what was predicted after it."), h("section", {}, strip.element, place)));
  strip.show([names, names], true, ["Text", "Text"], data.generated ?? 0);
  if (names.length) show(names.length - 1);
  return { data, setRoles: () => {}, state: () => ({ row: link.row }), restore: ({ row }) => { if (Number.isInteger(row) && names[row]) show(row); }, destroy: () => root.replaceChildren() };
}

// A page with several texts: one is shown at a time.
function severalTexts(root, texts, live) {
  const place = h("div", {}), select = h("select", { onchange: () => open(Number(select.value)) },
    texts.map((text, index) => h("option", { value: String(index) }, shortened(text.source.replace(/\s+/g, " "), 90))));
  let view = null;
  const open = (index) => { view?.destroy(); view = oneText(place, texts[index], live); };
  replace(root, texts.length > 1 ? h("p", {}, h("label", {}, "Text ", select)) : null, place);
  open(0);
  return { state: () => ({ text: Number(select.value), ...view.state() }), destroy: () => view.destroy(),
    restore: (state) => { if (state.text) { select.value = String(state.text); open(state.text); } view.restore(state); } };
}

class AttentionView {
  constructor(root, data, live) {
    Object.assign(this, { root, data, live, store: new MapStore(data, live) });
    const kinds = Object.keys(data.kinds);
    const causal = data.subject === "prompt";
    this.at = { kind: kinds.includes("cross") ? "cross" : kinds[0] ?? null, layer: MEAN, head: MEAN, row: null, words: false, least: 0.1, stretch: kinds.some((kind) => data.kinds[kind].columns.length > 80), skip: causal };
    this.link = this.makeLink();
    if (causal && kinds.length) this.at.row = this.link.pinned = data.kinds[kinds[0]].rows.length - 1; // what comes next
    this.build();
    this.stopTheme = onTheme(() => { this.grid.redraw(); this.show(); });
    this.openKind(this.at.kind);
  }

  // What is pointed at, or else pinned; every picture reads it.
  makeLink() {
    const tell = perFrame(() => { this.map.draw(); this.lines.draw(); this.strip.light(); this.readOut(); });
    const link = { hovered: null, over: null, spoken: false,
      get row() { return link.hovered ?? (link.over === null ? this.pinned : null); }, pinned: null,
      get column() { return link.over; },
      set: (row, column, spoken = false) => { if (row === link.hovered && column === link.over) return; Object.assign(link, { hovered: row, over: column, spoken }); tell(); },
      pin: (row) => { link.pinned = row === link.pinned ? null : row; this.at.row = link.pinned; tell(); this.showRow(); this.live?.changed?.(); } };
    return link;
  }

  build() {
    const { link, data } = this, title = identity("head");
    const choose = (layer, head) => this.openHead(layer, head);
    this.grid = headGrid(this.store, { choose, role: (layer, head) => this.role(layer, head) });
    this.map = heatMap(link);
    this.lines = headLines(link);
    this.strip = tokenStrip(link);
    this.detail = rowDetail(this.store, { choose });
    this.neuron = h("div", { class: "neuron-place" });
    this.kinds = h("div", { class: "segmented", role: "group", "aria-label": "Kind of attention" });
    this.about = h("p", { class: "hint" });
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.names = [0, 1].map(() => h("span", { class: "chosen" }));
    this.legend = h("canvas", { "aria-hidden": "true" });
    this.legendEnd = h("span", {});
    this.table = behind(() => this.asTable(), "This map as a table");
    replace(this.root, h("div", { class: "view attention" },
      h("div", { class: "controls" }, this.kinds, this.toggle("words", "Join tokens to words"), this.toggle("stretch", "Stretch colours to the largest weight"),
        data.subject === "translation" ? null : this.toggle("skip", "Leave out the first token", "Many heads attend to the first token when no other is relevant")),
      this.about,
      h("div", { class: "attention-parts" },
        h("div", { class: "part" },
          this.gridPart = h("section", {}, h("h2", {}, "All heads"), h("div", { class: "scroll tall" }, this.grid.element),
            this.gridHint = h("p", { class: "hint" }, data.roles ? MEASURED : "Select a head; arrow keys walk through them.")),
          h("section", {}, h("h2", {}, "Lines: ", this.names[0]), this.threshold(), this.lines.element)),
        h("div", { class: "part" },
          h("section", { "aria-labelledby": title }, h("h2", { id: title }, "Map: ", this.names[1]), this.strip.element, this.readout, this.map.element, this.mapTools()),
          this.rowPart = h("section", { hidden: true }, h("h2", {}, "Row: ", this.rowName = h("span", {})), this.detail.element, this.neuron))),
      this.table.element,
      h("p", { class: "caution" }, h("b", {}, "Attention is not an explanation. "), "A weight says which token a head attended to, not what it took from there, nor whether the output would have been "
        + "different without it (Jain and Wallace 2019; Wiegreffe and Pinter 2019). Switching a head off and comparing the output is evidence.")));
  }

  toggle(name, title, about = null) {
    const input = h("input", { type: "checkbox", checked: this.at[name], onchange: () => this.change({ [name]: input.checked }) });
    this[`${name}Input`] = input;
    return h("label", { title: about }, input, title);
  }

  threshold() {
    this.leastOut = h("output", {});
    this.leastInput = h("input", { type: "range", min: "0", max: "100", value: String(this.at.least * 100), oninput: () => this.change({ least: Number(this.leastInput.value) / 100 }) });
    return h("p", { class: "controls" }, h("label", {}, "Hide weights below", this.leastInput, this.leastOut));
  }

  mapTools() {
    const tool = (text, label, act) => h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    return h("div", { class: "controls map-tools" }, h("p", { class: "legend" }, "0", this.legend, this.legendEnd),
      h("span", { class: "segmented" }, tool("−", "Zoom out", () => this.map.zoomOut()), tool("Fit", "Fit the width", () => this.map.fit()), tool("+", "Zoom in", () => this.map.zoomIn())));
  }

  role(layer, head) {
    return this.data.roles?.find((one) => one.kind === this.at.kind && one.layer === layer && one.head === head && one.role !== "mixed")?.role ?? null;
  }

  setRoles(roles) {
    this.data.roles = roles;
    this.gridHint.textContent = MEASURED;
    this.grid.show(this.at.kind);
    this.openHead(this.at.layer, this.at.head, true);
  }

  // ---- what is shown

  openKind(kind) {
    this.at.kind = kind;
    const kinds = Object.keys(this.data.kinds);
    replace(this.kinds, ["encoder", "decoder", "cross", "causal"].filter((one) => kinds.includes(one)).map((one) => h("button", { type: "button", "aria-pressed": one === kind,
      onclick: () => { Object.assign(this.at, { layer: MEAN, head: MEAN, row: null }); this.link.pinned = null; this.openKind(one); this.live?.changed?.(); } }, KINDS[one][0])));
    const { layers, heads } = this.data.kinds[kind];
    this.at.layer = Math.min(this.at.layer, layers);
    this.at.head = Math.min(this.at.head, heads);
    if (layers === 1 && this.at.layer === MEAN) this.at.layer = 1;
    this.about.textContent = KINDS[kind][1] + (this.data.least ? ` Weights below ${this.data.least} are left out of this file.` : "")
      + (this.data.kinds[kind].arrays?.[0]?.roots8 ? " Weights in this file are rounded, by up to 0.004." : "");
    this.gridPart.hidden = layers * heads === 1;
    this.grid.show(kind);
    this.renameTokens();
    this.openHead(this.at.layer, this.at.head, true);
  }

  renameTokens() {
    const { kind, words } = this.at;
    this.shownNames = this.store.names(kind, words);
    this.strip.show(this.shownNames, SAME.includes(kind), KINDS[kind][2], words ? 0 : this.data.generated ?? 0);
  }

  openHead(layer, head, quiet = false) {
    Object.assign(this.at, { layer, head });
    this.grid.mark(layer, head);
    const role = head === MEAN ? null : this.role(layer, head);
    for (const place of this.names) place.textContent = headName(layer, head) + (role ? ` (${role})` : "");
    this.show();
    this.showRow();
    if (!quiet) this.live?.changed?.();
  }

  change(settings) {
    const renamed = "words" in settings;
    Object.assign(this.at, settings);
    if (renamed) { this.link.pinned = this.at.row = null; this.renameTokens(); this.showRow(); }
    this.show();
    this.live?.changed?.();
  }

  async show() {
    const { kind, layer, head, words } = this.at, wanted = `${kind} ${layer} ${head} ${words}`;
    this.wanted = wanted;
    let map;
    try { map = await this.store.map(kind, layer, head); } catch (error) { this.readout.textContent = error.message; return; }
    if (this.wanted !== wanted) return;
    const [rows, columns] = this.shownNames;
    this.shown = words ? joinedMap(map, this.data.kinds[kind].columns.length, rows, columns) : map;
    const skip = this.at.skip && columns.length > 1, most = largestWeight(this.shown, columns.length, skip);
    const scale = this.at.stretch ? most : 1;
    this.map.show(this.shown, this.shownNames, scale);
    this.strip.setMap(this.shown, scale);
    const threshold = this.at.least * (this.at.stretch ? most : 1);
    const count = this.lines.show(this.shown, this.shownNames, this.at.stretch ? most : 1, threshold, skip);
    this.leastOut.textContent = `${weightText(threshold)} · ${counted(count, "line")}`;
    this.legendEnd.textContent = `${weightText(scale)} · by its square root`;
    paintDots(this.legend, Float32Array.from({ length: 256 }, (_, i) => i), 1, 256, 255);
    this.table.renew();
    this.readOut();
  }

  showRow() {
    const { kind, layer, head, row, words } = this.at;
    this.rowPart.hidden = row === null || words;
    if (this.rowPart.hidden) return this.detail.clear();
    const [rows] = this.shownNames;
    replace(this.rowName, tokenText(rows[row]), unseen(`, ${row + 1}`));
    this.detail.show(kind, row, this.shownNames);
    arithmeticOf(this.neuron, { kind, layer, head, row }, this.live ? (place) => this.live.neuron(place) : null, this.data.neuron);
  }

  readOut() {
    const { row, column } = this.link, [rows, columns] = this.shownNames ?? [[], []];
    if (!this.shown || !rows[row ?? 0]) return;
    if (row === null && column === null) return replace(this.readout, this.at.words ? "Point at a cell." : "Point at a cell or a token; click to keep a row and see its numbers.");
    if (row === null || column === null) return replace(this.readout, h("b", {}, tokenText(row === null ? columns[column] : rows[row])));
    replace(this.readout, h("b", {}, tokenText(rows[row])), " attends to ", h("b", {}, tokenText(columns[column])), ": ", h("b", {}, weightText(this.shown[row * columns.length + column])));
  }

  asTable() { // every number of a small map, the five largest of each row of a large one
    const [rows, columns] = this.shownNames, wide = columns.length, whole = this.shown.length <= 2500;
    const name = (one) => h("bdi", {}, tokenName(one));
    const best = (r) => Array.from(this.shown.subarray(r * wide, (r + 1) * wide), (weight, c) => [weight, c]).sort((a, b) => b[0] - a[0]).slice(0, 5);
    return dataTable({ caption: `${KINDS[this.at.kind][0]} attention, ${headName(this.at.layer, this.at.head)}`,
      columns: ["row", ...(whole ? columns.map(name) : ["1st", "2nd", "3rd", "4th", "5th"])],
      rows: rows.map((row, r) => [name(row), ...(whole ? columns.map((_, c) => weightText(this.shown[r * wide + c])) : best(r).map(([weight, c]) => [name(columns[c]), ` ${weightText(weight)}`]))]) });
  }

  // ---- state

  state() {
    const { kind, layer, head, row, words, least, stretch } = this.at;
    return { kind, layer, head, row, words, least, stretch, cell: this.map.fitted ? null : this.map.cell };
  }

  restore(state) {
    const number = (value, low) => (Number.isInteger(value) && value >= low ? value : null);
    const kind = Object.hasOwn(this.data.kinds, state.kind ?? "") ? state.kind : this.at.kind;
    Object.assign(this.at, { layer: number(state.layer, 0) ?? this.at.layer, head: number(state.head, 0) ?? this.at.head, words: state.words === true, stretch: state.stretch === true,
      least: typeof state.least === "number" ? Math.max(0, Math.min(1, state.least)) : this.at.least });
    this.wordsInput.checked = this.at.words;
    this.stretchInput.checked = this.at.stretch;
    this.leastInput.value = String(this.at.least * 100);
    const row = number(state.row, 0), rows = this.data.kinds[kind]?.rows.length ?? 0;
    this.at.row = this.link.pinned = row !== null && row < rows && !this.at.words ? row : null;
    this.openKind(kind);
    if (number(state.cell, 1)) this.map.setCell(state.cell);
  }

  destroy() {
    this.stopTheme();
    for (const part of [this.grid, this.map, this.lines]) part.destroy();
    this.root.replaceChildren();
  }
}
