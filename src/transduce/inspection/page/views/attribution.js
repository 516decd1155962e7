// Attribution: which source tokens and which tokens of the prefix a prediction depends on; why this word and not that one.
//
// data: an Attribution of the Python API, and with `context` what can be chosen: { pieces, position, alternatives: [[{ token,
// piece, probability }] by position], from: first position to choose }
// live: { attribute({ position, instead_of, method }, signal) -> Promise of an Attribution, changed() }
import { h, replace, debounced } from "../lib/element.js";
import { diverging, inkOn, onTheme } from "../lib/draw.js";
import { direction, tokenList, tokenName, tokenText } from "../lib/tokens.js";
import { percent, signed } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { chipList } from "./source-chips.js";

const ATTRIBUTION_METHODS = {
  gradient_x_input: ["Gradient × input", "a first-order estimate of what each token's embedding contributes; check it with value zeroing or an intervention"],
  value_zeroing: ["Value zeroing", "what the prediction loses if a token's values are zero in every attention that reads it"],
};
const STRONGEST = 8;

export function attributionView(root, data, live = null) {
  return new AttributionView(root, data, live);
}

class AttributionView {
  constructor(root, data, live) {
    const { context = null, ...attribution } = data, has = attribution.token !== undefined;
    Object.assign(this, { root, live, context, shown: has ? attribution : null, running: null });
    this.wish = { position: context?.position ?? -1, instead_of: data.wish?.instead_of ?? null, method: attribution.method ?? "gradient_x_input" };
    this.ask = debounced(() => this.request(), 150);
    this.table = behind(() => this.buildTable());
    this.build();
    if (this.shown) this.show();
    else if (live) this.request();
    this.stop = onTheme(() => this.shown && this.show());
  }

  build() {
    this.result = h("section", { class: "attribution-result", "aria-label": "Attribution", "aria-live": "polite" });
    replace(this.root, h("div", { class: "view attribution" }, this.live && this.context ? this.chooser() : null, this.result));
    if (this.list) this.drawChooser();
  }

  // ---- what is asked

  chooser() {
    this.list = chipList("Predicted token", (chip) => { Object.assign(this.wish, { position: chip.key, instead_of: null }); this.other.value = ""; this.changed(); });
    this.alternatives = chipList("Instead of", (chip) => { this.wish.instead_of = chip.token; this.other.value = ""; this.changed(); });
    this.other = h("input", { type: "text", placeholder: "another word", "aria-label": "Another word", maxlength: "100", dir: "auto", oninput: () => { this.wish.instead_of = this.other.value.trim() || null; this.changed(); } });
    this.methods = h("div", { class: "segmented", role: "group", "aria-label": "Method" }, Object.entries(ATTRIBUTION_METHODS).map(([name, [title]]) =>
      h("button", { type: "button", "data-method": name, onclick: () => { this.wish.method = name; this.changed(); } }, title)));
    return h("section", { class: "attribution-chooser", "aria-label": "Question" }, h("h2", {}, "Why this word?"), this.list.element,
      h("h3", { class: "spaced" }, "… and not"), h("div", { class: "positions" }, this.alternatives.element, this.other),
      h("div", { class: "controls" }, h("span", {}, "Method"), this.methods));
  }

  drawChooser() {
    const { pieces, alternatives, from = 0 } = this.context, { position, instead_of: other, method } = this.wish, tokens = tokenList(pieces);
    this.list.show(tokens.slice(from).map((token) => ({ ...token, key: token.index })), (chip) => ({ pressed: chip.key === position, name: chip.text }), direction(pieces.join("")));
    const own = tokens[position], others = (alternatives[position] ?? []).filter((one) => one.piece !== pieces[position]).slice(0, 6);
    const chips = others.map((one) => ({ ...tokenList([one.piece])[0], key: one.token, token: one.token, probability: one.probability }));
    this.alternatives.show([{ text: "nothing else", starts: true, special: null, key: null, token: null }, ...chips], (chip) => ({ pressed: chip.token === other, name: chip.token === null ? `Explain ${own?.text ?? "the token"} by itself` : `${chip.text}, ${percent(chip.probability)}`,
      content: chip.token === null ? h("i", {}, "(by itself)") : [tokenText(chip), h("small", {}, ` ${percent(chip.probability)}`)] }), "auto");
    for (const button of this.methods.children) button.setAttribute("aria-pressed", button.dataset.method === method);
  }

  changed() {
    this.drawChooser();
    this.live.changed();
    this.ask();
  }

  async request() {
    this.running?.abort();
    const own = (this.running = new AbortController()), { position, instead_of: other, method } = this.wish;
    this.result.setAttribute("aria-busy", true);
    try {
      const found = await this.live.attribute({ position, method, ...(other === null ? {} : { instead_of: other }) }, own.signal);
      if (own.signal.aborted) return;
      this.shown = found;
      this.show();
    } catch (error) {
      if (own.signal.aborted) return;
      this.shown = null;
      replace(this.result, h("h2", {}, "This cannot be attributed"), h("p", {}, error.message));
    }
    this.result.setAttribute("aria-busy", false);
  }

  // ---- what is shown

  show() {
    const { token, instead_of: other, method, objective, source, prefix, source_pieces: read, prefix_pieces: before, source_share: share } = this.shown;
    const name = (piece) => h("b", {}, tokenText(tokenList([piece])[0])), has = source.length > 0;
    const largest = Math.max(1e-9, ...source.map(Math.abs), ...prefix.map(Math.abs));
    replace(this.result,
      h("h2", { class: "question" }, "Why ", name(token), other === null ? "?" : [" and not ", name(other), "?"]),
      h("p", { class: "hint" }, other === null ? `Its log-probability is ${signed(objective)}.` : `Its log-probability is ${signed(Math.abs(objective)).replace("+", "")} ${objective >= 0 ? "above" : "below"} the other's.`, ` ${ATTRIBUTION_METHODS[method][0]}: ${ATTRIBUTION_METHODS[method][1]}.`),
      has ? this.shares(share) : null,
      has ? [h("h3", {}, "Source"), this.flow(read, source, largest)] : null,
      h("h3", {}, has ? "Prefix (what was written before)" : "Prompt and what was written before"), this.flow(before, prefix, largest),
      h("p", { class: "hint" }, h("span", { class: "swatch for" }), " speaks for it, ", h("span", { class: "swatch against" }), " against it"),
      h("h3", {}, "Strongest"), this.strongest(largest), this.table.element);
    this.table.renew();
  }

  shares(share) {
    const part = (value, kind, name) => h("span", { class: kind, style: { "flex-grow": value.toFixed(4) } }, value > 0.12 ? `${name} ${percent(value)}` : null);
    return h("div", { class: "share-bar", role: "img", "aria-label": `Source ${percent(share)}, prefix ${percent(1 - share)} of all absolute attributions` }, part(share, "of-source", "source"), part(1 - share, "of-prefix", "prefix"));
  }

  flow(pieces, values, largest) {
    return h("p", { class: "attributed", dir: direction(pieces.join("")) }, tokenList(pieces).map((token, i) => {
      const colour = diverging(values[i] / largest);
      return [token.starts && i ? " " : "", h("span", { class: "token", title: `${tokenName(token)}: ${signed(values[i], 4)}`, style: { background: colour, color: inkOn(colour) } }, tokenText(token))];
    }));
  }

  rows() {
    const { source, prefix, source_pieces: read, prefix_pieces: before } = this.shown;
    const of = (side, pieces, values) => tokenList(pieces).map((token, i) => ({ side, token, value: values[i], index: i }));
    return [...of("source", read, source), ...of("prefix", before, prefix)];
  }

  strongest(largest) {
    const rows = this.rows().sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, STRONGEST);
    return h("ol", { class: "strongest" }, rows.map(({ side, token, value }) => h("li", {}, h("span", { class: "name" }, tokenText(token), h("small", {}, ` ${side}`)),
      h("span", { class: `lever ${value < 0 ? "against" : "for"}`, "aria-hidden": "true" }, h("span", { style: { "inline-size": `${((Math.abs(value) / largest) * 50).toFixed(2)}%` } })), h("span", { class: "amount" }, signed(value, 3)))));
  }

  buildTable() {
    return dataTable({ caption: "Attribution of every token", columns: ["Token", "Side", "Position", "Attribution"], rows: this.rows().map(({ side, token, value, index }) => [tokenName(token), side, String(index), signed(value, 5)]) });
  }

  // ---- links and files

  state() { return { position: this.wish.position, ...(this.wish.instead_of === null ? {} : { instead_of: this.wish.instead_of }), method: this.wish.method }; }

  restore(state) {
    const { position, instead_of: other = null, method } = state;
    if (Number.isInteger(position) && position < (this.context?.pieces.length ?? 0)) this.wish.position = position;
    this.wish.instead_of = ["number", "string"].includes(typeof other) ? other : null;
    if (Object.hasOwn(ATTRIBUTION_METHODS, method ?? "")) this.wish.method = method;
    if (!this.live) return;
    if (typeof other === "string") this.other.value = other;
    this.drawChooser();
    this.request();
  }

  content() { return { ...this.shown, context: this.context }; }

  destroy() {
    this.running?.abort();
    this.ask.cancel();
    this.stop();
    this.root.replaceChildren();
  }
}
