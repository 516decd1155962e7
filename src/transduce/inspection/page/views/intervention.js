// Intervene: mask or edit source words, switch off parts of the model, patch from a second sentence, and see what changes.
//
// data: { source, output, pieces, words, produced, kinds, feed_forward, task, can: { mask, patch }, result, effects }; all but
// `result` (an Intervention of the Python API, or null) may be missing, then only the result is shown; so it is for data that is
// an Intervention itself.
// live: { intervene(request, signal), patch(request, signal), adopt(text), changed() }
import { h, replace, debounced } from "../lib/element.js";
import { direction } from "../lib/tokens.js";
import { comparisonPart } from "./comparison.js";
import { effectsPart } from "./effects.js";
import { patchForm } from "./patch-form.js";
import { sourcePart } from "./source-chips.js";
import { partKey, partsOf, partsRequest, switchboardPart } from "./switchboard.js";

const WHY = "An attention map shows where a head attends, not whether that matters. Here a part is really removed and the model writes again: if the output or its probability changes, that part caused the difference.";
const FRESH = () => ({ mode: "off", off: [], masked: [], edits: {}, pieces: false, patch: { other: "", place: "memory", layer: 1, head: 1, positions: null } });

export function interventionView(root, data, live = null) {
  return new InterventionView(root, data.original ? { result: data } : data, live);
}

class InterventionView {
  constructor(root, data, live) {
    Object.assign(this, { root, data, live, result: data.result ?? null, current: FRESH(), running: null, answers: new Map() });
    this.noun = { language_modeling: "continuation", translation: "translation" }[data.task] ?? "output";
    this.boards = data.kinds ? partsOf(data.kinds, data.feed_forward) : [];
    const words = new Set((data.words ?? []).filter((word) => word !== null)).size;
    this.current.pieces = words < 3; // one word, spelled: its pieces are what can be masked
    this.current.patch.other = data.source ?? "";
    this.ask = debounced(() => this.request(), 120);
    this.build();
    this.show();
  }

  build() {
    const { data, live, current } = this, enabled = live !== null, changed = () => this.changed();
    this.comparison = comparisonPart(this.noun);
    this.source = data.pieces?.length && data.can?.mask ? sourcePart(data, current, changed, enabled) : null;
    this.board = switchboardPart(this.boards, (parts, off) => this.toggle(parts, off), enabled);
    this.effects = effectsPart(this.boards, { measure: live ? (request, signal) => this.answer("intervene", request, signal) : null,
      onFound: (found) => this.board.shade(found), onChoose: (part) => this.toggle([part], !this.isOff(part)) });
    this.form = data.can?.patch ? patchForm(data, current.patch, changed, enabled) : null;
    if (data.effects) { this.effects.set(data.effects); this.board.shade(data.effects); }
    this.modes = h("div", { class: "segmented", role: "group", "aria-label": "Intervention" }, Object.entries({ off: "Switch off", patch: "Patch" }).map(([mode, title]) =>
      h("button", { type: "button", "data-mode": mode, onclick: () => { current.mode = mode; this.changed(); } }, title)));
    this.reset = h("button", { type: "button", onclick: () => this.clear() }, "Reset");
    this.note = h("p", { class: "hint" });
    this.offSide = h("div", { class: "inputs" }, this.source?.element ?? this.withoutSource(), this.boards.length ? this.boardSection() : this.withoutBoard());
    this.patchSide = h("div", { class: "inputs" }, this.form?.element ?? null);
    const tools = live ? h("div", { class: "controls tight" }, this.form ? this.modes : null, this.reset) : null;
    const sides = data.kinds ? [this.offSide, this.patchSide] : [];
    replace(this.root, h("div", { class: "view intervention" }, h("p", { class: "caution why" }, h("b", {}, "Causal evidence. "), WHY), tools,
      h("div", { class: sides.length ? "split" : "" }, sides, h("div", { class: "outcome" }, this.comparison.element))));
  }

  boardSection() {
    return h("section", { class: "board-part", "aria-label": "Parts of the model" }, h("h2", {}, "Parts of the model"),
      h("p", { class: "hint" }, "Each square is a head; ", h("i", {}, "attn"), " is a layer's whole attention, ", h("i", {}, "FFN"), " its feed-forward network. ", this.live ? "A click switches it off: its output becomes zero." : "What is off is struck out: its output is zero."),
      this.note, this.board.element,
      this.live || this.data.effects ? h("h3", { class: "spaced" }, "What matters for this sentence?") : null,
      this.live ? h("p", { class: "hint" }, `Switches off every part in turn and shades it by what the ${this.noun} loses: orange parts support it, blue ones oppose it.`) : null,
      this.effects.element);
  }

  withoutSource() {
    const { task } = this.data;
    if (!this.data.kinds) return null;
    return h("p", { class: "caution" }, task === "language_modeling"
      ? "A language model has no source whose words could be masked: edit the prompt above, or switch off parts of the model."
      : "Source words can only be masked in a model with self-attention in its encoder.");
  }

  withoutBoard() {
    return h("p", { class: "caution" }, "This model has no attention heads or feed-forward networks that could be switched off.");
  }

  // ---- what the user does

  isOff(part) { return this.current.off.some((one) => partKey(one) === partKey(part)); }

  toggle(parts, off) {
    const keys = new Set(parts.map(partKey)), kept = this.current.off.filter((part) => !keys.has(partKey(part)));
    this.current.off = off ? [...kept, ...parts] : kept;
    this.changed();
  }

  clear() {
    const { pieces, mode, patch } = this.current, fresh = FRESH();
    Object.assign(this.current, fresh, { pieces, mode, patch: Object.assign(patch, fresh.patch, { other: this.data.source }) });
    this.changed();
  }

  changed() {
    this.draw();
    this.live?.changed();
    if (this.live) this.ask();
  }

  // ---- requests: the last one wins, and none is sent twice

  wanted() {
    const { current } = this;
    if (current.mode === "patch") {
      const body = this.form?.request();
      return body ? ["patch", body] : null;
    }
    const text = this.source?.text() ?? this.data.source;
    if (this.isEdited && text !== this.data.source) return ["patch", { other: text, where: "memory" }]; // the whole encoder output of the edited sentence
    if (!current.off.length && !current.masked.length) return null;
    return ["intervene", { ...partsRequest(current.off), ...(current.masked.length ? { tokens: current.masked } : {}) }];
  }

  get isEdited() { return Object.keys(this.current.edits).length > 0; }

  async answer(what, body, signal) {
    const key = JSON.stringify([what, body]);
    if (!this.answers.has(key)) this.answers.set(key, await this.live[what](body, signal));
    return this.answers.get(key);
  }

  async request() {
    this.running?.abort();
    const wanted = this.wanted();
    this.result = null;
    if (!wanted) { this.running = null; this.comparison.busy(false); return this.show(); }
    const own = (this.running = new AbortController());
    this.comparison.busy(true);
    try {
      const result = await this.answer(...wanted, own.signal), patches = this.current.mode === "patch";
      const alone = patches ? await this.answer("patch", { other: wanted[1].other, where: "memory" }, own.signal) : null;
      if (own.signal.aborted) return;
      if (patches) this.result = { ...result, changes: [this.form.describe()], alone: alone.changed.text };
      else this.result = this.isEdited ? { ...result, changes: [`source edited: ${this.source.text()}`] } : result;
      this.show();
    } catch (error) {
      if (own.signal.aborted) return;
      this.comparison.empty("This cannot be done", h("p", {}, error.message));
    }
    this.comparison.busy(false);
    this.live?.changed();
  }

  // ---- what is shown

  show() {
    this.draw();
    if (this.result) {
      this.comparison.show(this.result, this.result.alone);
      if (this.isEdited && this.live && this.current.mode === "off") this.comparison.element.lastChild.append(h("button", { type: "button", onclick: () => this.live.adopt(this.source.text()) }, "Use the edited sentence in every view"));
      return;
    }
    const { source, output = "" } = this.data;
    if (this.wanted()) return; // an answer is on its way
    this.comparison.empty("Nothing is changed yet", source ? h("p", { class: "written", tabindex: "0", dir: direction(output) }, output) : null,
      h("p", { class: "hint" }, this.current.mode === "patch" ? "Write a second sentence that differs, best in one word."
        : `${this.source ? "Click a source word to mask it, or" : "Click"} a square of the board to switch it off; the ${this.noun} and its probabilities appear here at once.`));
  }

  draw() {
    const { current } = this;
    for (const button of this.modes.children) button.setAttribute("aria-pressed", button.dataset.mode === current.mode);
    this.offSide.hidden = current.mode !== "off";
    this.patchSide.hidden = current.mode !== "patch";
    this.source?.draw();
    this.form?.draw();
    this.board.set(current.off.map(partKey));
    this.board.disable(this.isEdited);
    this.note.textContent = this.isEdited ? "The sentence is edited: switches act on the sentence as it was, so they rest until you reset it or use the edited sentence in every view." : "";
    this.reset.disabled = !this.wanted();
  }

  // ---- links and files

  state() {
    const { mode, off, masked, edits, pieces, patch } = this.current, found = {};
    if (off.length) found.off = partsRequest(off);
    if (masked.length) found.masked = masked;
    if (this.isEdited) found.edits = edits;
    if (mode === "patch") Object.assign(found, { mode, patch });
    if (Object.keys(found).length) found.pieces = pieces;
    return found;
  }

  // Whatever stands in a link, only parts and positions that this model has are taken.
  restore(state) {
    const { current, data } = this, length = data.pieces?.length ?? 0;
    const known = new Set(this.boards.flatMap(({ layers }) => layers.flat().map(partKey)));
    const wished = ["heads", "attention", "feed_forward"].flatMap((type) => listOf(state.off?.[type]).map((name) => ({ type, name: listOf(name) })));
    current.off = wished.filter((part) => known.has(partKey(part)));
    current.masked = listOf(state.masked).filter((position) => Number.isInteger(position) && position >= 0 && position < length);
    current.edits = Object.fromEntries(Object.entries(state.edits ?? {}).filter(([key, text]) => typeof text === "string" && Number(key) < length));
    if (typeof state.pieces === "boolean") current.pieces = state.pieces;
    if (state.mode === "patch" && this.form) {
      current.mode = "patch";
      const { other, place, layer, head, positions } = state.patch ?? {};
      Object.assign(current.patch, { other: String(other ?? data.source), place: /^(memory|residual\.(en|de)coder|head\.(encoder|decoder|cross))$/.test(place) ? place : "memory",
        layer: Number(layer) || 1, head: Number(head) || 1, positions: Array.isArray(positions) ? positions.filter(Number.isInteger) : null });
    }
    this.draw();
    if (this.live) this.request();
  }

  // What a saved page holds.
  content() { return { ...this.data, result: this.result, effects: Object.keys(this.effects.get()).length ? this.effects.get() : null }; }

  destroy() {
    this.running?.abort();
    this.effects.stop();
    this.ask.cancel();
    this.root.replaceChildren();
  }
}

const listOf = (value) => (Array.isArray(value) ? value : []);
