// The beam as a tree: every hypothesis step by step, what was pruned and why, and what would have come of it.
//
// data: BeamTree.to_json of Python, and `forced`: [{ node, output, pieces, score, log_probability }] that were compared.
// live: force(tokens) -> Promise of a pass; use(pass); search({ beam_size }) draws another tree; changed()
import { h, replace, svg } from "../lib/element.js";
import { enlargement, inkOn, onTheme, unsure } from "../lib/draw.js";
import { clamp, counted, fixed, percent } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { direction, specialName, tokenList, tokenName, tokenText } from "../lib/tokens.js";
import { layoutTree, pathTo } from "./tree-layout.js";

const SIZE = { width: 104, height: 40, gapX: 26, gapY: 8, margin: 10 }; // of nodes, in CSS pixels at scale 1
const SMALLEST = 0.45; // scale at which a token can still be read
const REASONS = {
  outscored: "other hypotheses filled the beam",
  end_outscored: "it ends here, but is not among the best finished hypotheses",
  stopped: "it was unfinished when the search stopped",
};
const PRUNED = { best: "show next to the best", all: "show all", none: "hide" };
const OUTCOMES = { root: "start", kept: "kept", finished: "finished", pruned: "pruned", cut_off: "cut off at the maximum length" };

export function beamTreeView(root, data, live = null) {
  return new BeamTreeView(root, data, live);
}

class BeamTreeView {
  constructor(root, data, live) {
    Object.assign(this, { root, data, live, selected: null, scale: enlargement(), pruned: data.nodes.length <= 60 ? "all" : "best" });
    const end = data.hypotheses[0]?.node ?? null;
    this.best = new Set(end === null ? [] : pathTo(data.nodes, end));
    this.forced = [...(data.forced ?? [])];
    this.build();
    this.drawTree();
    this.select(end ?? 0, false);
    this.stopTheme = onTheme(() => this.drawTree());
  }

  build() {
    const { data, live } = this, tool = (text, label, act) => h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    const count = data.nodes.filter((node) => node.outcome === "pruned").length;
    this.prunedInput = h("select", { onchange: () => { this.pruned = this.prunedInput.value; this.drawTree(); this.live?.changed?.(); } },
      Object.entries(PRUNED).map(([name, title]) => h("option", { value: name, selected: name === this.pruned }, title)));
    this.beam = h("input", { type: "range", min: "1", max: "12", value: String(data.beam_size), oninput: () => { this.beamOut.textContent = this.beam.value; }, onchange: () => live.search({ beam_size: Number(this.beam.value) }) });
    this.beamOut = h("output", {}, String(data.beam_size));
    this.canvas = h("div", { class: "tree-space", role: "tree", "aria-label": "Hypotheses; arrow keys walk through them", onkeydown: (event) => this.key(event) });
    this.box = h("div", { class: "tree-box scroll" }, this.canvas);
    this.detail = h("section", { class: "tree-detail", "aria-live": "polite" });
    this.compared = h("div", { class: "compared" });
    this.list = h("ol", { class: "hypotheses" });
    replace(this.root, h("div", { class: "view beam-tree" },
      h("div", { class: "controls" }, live ? h("label", {}, "Beam size", this.beam, this.beamOut) : h("span", {}, `Beam of ${data.beam_size}`),
        h("label", {}, `${counted(count, "pruned hypothesis", "pruned hypotheses")}:`, this.prunedInput),
        h("span", { class: "segmented" }, tool("−", "Zoom out", () => this.zoom(0.85)), tool("Fit", "Fit the width", () => this.zoom(null)), tool("+", "Zoom in", () => this.zoom(1.18))),
        this.legend()),
      h("p", { class: "hint" }, "Each box is a token that continues the text on its left. Its number is the log-probability of the text so far: 0 is certain, every token makes it smaller."),
      this.box,
      h("div", { class: "tree-parts" }, h("section", {}, h("h2", {}, "Finished, best first"), this.list), this.detail),
      this.compared,
      behind(() => this.asTable(), "The tree as a table").element));
    this.drawHypotheses();
    for (const one of this.forced) this.showForced(one);
  }

  legend() {
    const entry = (name, text) => h("span", { class: "entry" }, h("i", { class: `node-sign ${name}` }), text);
    const share = (name) => h("i", { class: `node-sign ${name}` });
    return h("p", { class: "legend" }, entry("selected", "selected"), entry("best", "best"), entry("kept", "kept"), entry("pruned", "pruned"),
      h("span", { class: "entry" }, "token: likely", share("likely"), share("possible"), share("unlikely"), "unlikely"));
  }

  // ---- the tree

  isHidden(node) {
    if (node.outcome !== "pruned" || this.pruned === "all" || node.id === this.selected) return false;
    return this.pruned === "none" || !this.best.has(node.parent);
  }

  drawTree() {
    const { nodes } = this.data, layout = layoutTree(nodes, this.best, (node) => this.isHidden(node)), s = this.scale;
    this.layout = layout;
    this.buttons = new Map();
    const step = { x: (SIZE.width + SIZE.gapX) * s, y: (SIZE.height + SIZE.gapY) * s }, margin = SIZE.margin;
    this.at = (id) => { const { column, row } = layout.places.get(id); return { x: margin + column * step.x, y: margin + row * step.y }; };
    const wide = margin * 2 + layout.columns * step.x, high = margin * 2 + layout.rows * step.y;
    this.edges = svg("svg", { class: "tree-edges", width: String(wide), height: String(high), "aria-hidden": "true" });
    for (const [id] of layout.places) if (nodes[id].parent !== null && layout.places.has(nodes[id].parent)) this.edges.append(this.edge(nodes[id], s));
    const items = [...layout.places.keys()].map((id) => this.node(nodes[id], s));
    for (const [name, value] of [["width", wide], ["height", high], ["font-size", null]]) if (value !== null) this.canvas.style.setProperty(name, `${value}px`);
    replace(this.canvas, this.edges, items);
    if (this.selected !== null) this.mark();
  }

  edge(node, s) {
    const from = this.at(node.parent), to = this.at(node.id), x = from.x + SIZE.width * s, middle = SIZE.height * s / 2, bend = SIZE.gapX * s * 0.5;
    const a = from.y + middle, b = to.y + middle, turn = Math.min(10 * s, Math.abs(b - a));
    const path = a === b ? `M${x} ${a}H${to.x}` : `M${x} ${a}H${x + bend - turn * 0.5}Q${x + bend} ${a} ${x + bend} ${a + turn}V${b - turn}Q${x + bend} ${b} ${x + bend + turn * 0.5} ${b}H${to.x}`;
    const line = svg("path", { d: path, class: `${node.outcome}${this.best.has(node.id) ? " best" : ""}`, "data-node": String(node.id) });
    line.style.setProperty("stroke-width", `${(1 + 3 * Math.exp(node.token_log_probability)) * Math.sqrt(s)}`);
    return line;
  }

  node(node, s) {
    const [token] = node.token === null ? [{ special: "start", text: "start" }] : tokenList([node.piece]), at = this.at(node.id);
    const probability = Math.exp(node.token_log_probability), shade = node.token === null ? null : unsure(probability);
    const says = node.token === null ? "start" : `${token.text}, ${percent(probability)}, ${OUTCOMES[node.outcome]}`;
    const button = h("div", { role: "treeitem", class: `tree-node ${node.outcome}${this.best.has(node.id) ? " best" : ""}`, tabindex: "-1", "aria-level": String(node.step + 1), "aria-label": says, "aria-selected": false,
      "data-node": String(node.id), onclick: () => this.select(node.id) },
    h("span", { class: "text" }, tokenText(token)), node.token === null ? null : h("small", {}, fixed(node.log_probability)));
    const rank = this.data.hypotheses.find((one) => one.node === node.id)?.rank;
    if (rank) button.append(h("span", { class: "rank" }, `#${rank}`));
    for (const [name, value] of [["left", at.x], ["top", at.y], ["width", SIZE.width * s], ["height", SIZE.height * s], ["font-size", clamp(15 * s, 8, 24)]]) button.style.setProperty(name, `${value}px`);
    if (shade && node.outcome !== "pruned") { button.style.setProperty("background", shade); button.style.setProperty("color", inkOn(shade)); }
    this.buttons.set(node.id, button);
    return button;
  }

  zoom(factor) { // null: as large as the width of the box allows
    this.scale = clamp(factor === null ? (this.scale * (this.box.clientWidth - 2 * SIZE.margin)) / (this.canvas.offsetWidth - 2 * SIZE.margin) : this.scale * factor, SMALLEST, factor === null ? enlargement() : 2);
    this.drawTree();
    this.live?.changed?.();
  }

  // ---- selection

  select(id, moved = true) {
    if (!this.data.nodes[id]) return;
    this.selected = id;
    if (!this.layout.places.has(id)) this.drawTree();
    this.mark();
    this.drawDetail();
    if (moved) this.live?.changed?.();
  }

  mark() {
    const path = new Set(pathTo(this.data.nodes, this.selected));
    for (const [id, button] of this.buttons) {
      button.tabIndex = id === this.selected ? 0 : -1;
      button.setAttribute("aria-selected", id === this.selected);
      button.classList.toggle("on-path", path.has(id));
    }
    for (const line of this.edges.children) line.classList.toggle("on-path", path.has(Number(line.dataset.node)));
  }

  key(event) {
    const { nodes } = this.data, { children, places } = this.layout, here = this.selected, kids = children.get(here) ?? [];
    const column = (step) => { // the next node of the same column, up or down
      const own = places.get(here), found = [...places].filter(([, place]) => place.column === own.column && Math.sign(place.row - own.row) === step);
      return found.sort((a, b) => Math.abs(a[1].row - own.row) - Math.abs(b[1].row - own.row))[0]?.[0];
    };
    const next = { ArrowRight: () => kids[0], ArrowLeft: () => nodes[here].parent, ArrowDown: () => column(1), ArrowUp: () => column(-1), Home: () => 0, End: () => this.data.hypotheses[0]?.node }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.detail.querySelector("button.primary")?.focus(); return; }
    if (event.key === "+" || event.key === "-") return this.zoom(event.key === "+" ? 1.18 : 0.85);
    if (!next) return;
    event.preventDefault();
    const id = next();
    if (id === null || id === undefined) return;
    this.select(id);
    this.buttons.get(id)?.focus();
  }

  pieces(id) { return pathTo(this.data.nodes, id).map((one) => this.data.nodes[one]).filter((node) => node.token !== null); }
  tokens(id) { return [...this.data.prefix, ...this.pieces(id).map((node) => node.token)]; }

  // Pieces that every hypothesis begins with; the tree has only their tokens, a hypothesis also their pieces.
  get prefix() { return this.data.hypotheses[0]?.pieces.slice(0, this.data.prefix.length) ?? []; }

  drawDetail() {
    const node = this.data.nodes[this.selected], path = this.pieces(this.selected), names = tokenList([...this.prefix, ...path.map((one) => one.piece)]);
    const rank = this.data.hypotheses.find((one) => one.node === node.id)?.rank;
    const why = node.reason ? REASONS[node.reason] ?? node.reason : null;
    const facts = node.token === null ? [] : [["Token probability", percent(Math.exp(node.token_log_probability))], ["Log-probability", fixed(node.log_probability, 3)], ["Score", fixed(node.score, 3)],
      ["Outcome", (rank ? `finished, rank ${rank}` : OUTCOMES[node.outcome]) + (why ? `: ${why}` : "")]];
    const can = this.live && node.token !== null && specialName(node.piece) !== "end" && !this.best.has(node.id);
    replace(this.detail, h("h2", {}, node.token === null ? "Start" : "Selected hypothesis"),
      h("p", { class: "hypothesis", dir: direction(names.map((one) => one.text).join(" ")) }, names.map((name, index) => [name.starts && index ? " " : null, tokenText(name)])),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      can ? h("p", {}, h("button", { type: "button", class: "primary", onclick: () => this.force(node) }, "Force this branch and compare")) : null,
      node.token === null ? h("p", { class: "hint" }, "Each column is a step. Select a node to see its scores; force a pruned branch to see what would have come of it.") : null);
  }

  // ---- forcing a branch

  async force(node) {
    const button = this.detail.querySelector("button.primary");
    button.disabled = true;
    try {
      const pass = await this.live.force(this.tokens(node.id));
      const found = { node: node.id, output: pass.output, pieces: pass.produced_pieces, score: pass.score, log_probability: pass.log_probability, pass };
      this.forced = [found, ...this.forced.filter((one) => one.node !== node.id)].slice(0, 4);
      replace(this.compared);
      for (const one of [...this.forced].reverse()) this.showForced(one);
      this.compared.scrollIntoView({ block: "nearest" });
      this.live.changed?.();
    } catch (error) {
      replace(this.compared, h("p", { class: "failed" }, error.message));
    }
    button.disabled = false;
  }

  showForced(found) {
    const [best] = this.data.hypotheses;
    if (!best) return;
    const fork = this.data.nodes[found.node], better = found.score - best.score;
    const side = (title, pieces, other, score, log, extra) => h("div", { class: "side" }, h("h3", {}, title), changedTokens(pieces, other), h("p", { class: "hint" }, `score ${fixed(score, 3)} · log-probability ${fixed(log, 3)}`), extra);
    this.compared.prepend(h("section", { class: "comparison" },
      h("h2", {}, "What would have come of ", tokenText(tokenList([fork.piece])[0]), ` at step ${fork.step}`),
      h("div", { class: "sides" }, side("The search chose", best.pieces, found.pieces, best.score, best.log_probability, null),
        side("Forced", found.pieces, best.pieces, found.score, found.log_probability,
          this.live && found.pass ? h("button", { type: "button", onclick: () => this.live.use(found.pass) }, "Use this translation") : null)),
      h("p", {}, Math.abs(better) < 5e-4 ? "Both have the same score." : better > 0 ? `The forced one scores better by ${fixed(better, 3)}: the search made an error by pruning it.` : `The forced one scores worse by ${fixed(-better, 3)}: pruning it lost nothing.`)));
  }

  // ---- lists

  drawHypotheses() {
    replace(this.list, this.data.hypotheses.map((one) => h("li", {}, h("button", { type: "button", class: "hypothesis-row", onclick: () => { if (one.node !== null) { this.select(one.node); this.reveal(one.node); } } },
      h("span", { class: "rank" }, `#${one.rank}`), h("bdi", { dir: "auto" }, one.text || "(empty)"), h("span", { class: "share" }, fixed(one.score, 3))))));
  }

  reveal(id) { this.buttons.get(id)?.scrollIntoView({ block: "nearest", inline: "center" }); }

  asTable() {
    return dataTable({ caption: "Every hypothesis that the search considered", columns: ["step", "token", "token probability", "log-probability", "score", "outcome"],
      rows: this.data.nodes.filter((node) => node.token !== null).map((node) => [String(node.step), h("bdi", {}, tokenName(tokenList([node.piece])[0])), percent(Math.exp(node.token_log_probability)),
        fixed(node.log_probability, 3), fixed(node.score, 3), OUTCOMES[node.outcome] + (node.reason ? `: ${REASONS[node.reason] ?? node.reason}` : "")]) });
  }

  state() { return { node: this.selected, pruned: this.pruned, scale: Math.round(this.scale * 100) / 100 }; }

  restore(state) {
    if (Object.hasOwn(PRUNED, state.pruned ?? "")) this.pruned = this.prunedInput.value = state.pruned;
    this.scale = typeof state.scale === "number" ? clamp(state.scale, 0.45, 2) : enlargement();
    this.drawTree();
    if (!Number.isInteger(state.node) || !this.data.nodes[state.node]) return;
    this.select(state.node, false);
    if (!this.best.has(state.node)) this.reveal(state.node);
  }

  destroy() {
    this.stopTheme();
    this.root.replaceChildren();
  }
}

// Tokens of one translation; those that the other one has not, in a longest common subsequence, are marked.
export function changedTokens(pieces, other) {
  const own = pieces.filter((piece) => specialName(piece) !== "end"), common = commonPieces(own, other), names = tokenList(own);
  return h("p", { class: "hypothesis", dir: direction(names.map((one) => one.text).join(" ")) }, names.map((name, index) => [name.starts && index ? " " : null,
    common.has(index) ? tokenText(name) : h("mark", {}, tokenText(name))]));
}

function commonPieces(a, b) {
  const wide = b.length + 1, table = new Uint16Array((a.length + 1) * wide), kept = new Set();
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    table[i * wide + j] = a[i] === b[j] ? table[(i + 1) * wide + j + 1] + 1 : Math.max(table[(i + 1) * wide + j], table[i * wide + j + 1]);
  }
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { kept.add(i); i++; j++; } else if (table[(i + 1) * wide + j] >= table[i * wide + j + 1]) i++;
    else j++;
  }
  return kept;
}
