// What every head attends to, measured on a sample: its role, the shares of its attention, its entropy.
// data: a HeadSummary of the Python API;  live: { open(kind, layer, head), changed() }
import { h, replace } from "../lib/element.js";
import { inkOn, onTheme, sequential } from "../lib/draw.js";
import { roving } from "../lib/keys.js";
import { counted, fixed, percent } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { KIND_TITLES } from "./switchboard.js";

const ROLE_TITLES = { itself: "itself", previous: "previous token", next: "next token", first: "first token", "same word": "same word elsewhere", "after same word": "after the same word",
  punctuation: "punctuation", end: "end token", aligned: "aligned word", far: "8 or more tokens away", mixed: "mixed" };
const SHORT = { "same word": "same", "after same word": "after same", punctuation: "punct." };

const roleTitle = (role) => ROLE_TITLES[role] ?? role;
const shareOf = (head) => (head.role === "mixed" ? 0 : head.shares[head.role]);

export function headSummaryView(root, data, live = null) {
  const { heads, texts } = data, kinds = [...new Set(heads.map((head) => head.kind))], names = [...new Set(heads.flatMap((head) => Object.keys(head.shares)))];
  const buttons = new Map();
  let filter = null, chosen = heads[0];

  const roles = [...new Set(heads.map((head) => head.role))].sort((a, b) => (a === "mixed") - (b === "mixed") || countOf(b) - countOf(a));
  const legend = h("div", { class: "units", role: "group", "aria-label": "Show heads of one role" }, roles.map((role) => h("button", { type: "button", class: "unit small", "data-role": role, "aria-pressed": "false",
    onclick: () => { filter = filter === role ? null : role; draw(); live?.changed(); } }, roleTitle(role), h("small", {}, ` ${countOf(role)}`))));
  const detail = h("section", { class: "head-detail", "aria-label": "Chosen head", "aria-live": "polite" });
  const table = behind(() => dataTable({ caption: `Shares of attention on ${counted(texts, "text")}, with what uniform attention would give in brackets`, columns: ["Head", "Role", "Entropy, bits", "Distance", ...names.map(roleTitle)],
    rows: heads.map((head) => [headTitle(head), roleTitle(head.role), fixed(head.entropy), fixed(head.distance), ...names.map((name) => (head.uniform[name] ? `${percent(head.shares[name])} (${percent(head.uniform[name])})` : "–"))]) }));

  function countOf(role) { return heads.filter((head) => head.role === role).length; }

  function boardOf(kind) {
    const own = heads.filter((head) => head.kind === kind), wide = Math.max(...own.map((head) => head.head)), high = Math.max(...own.map((head) => head.layer)), cells = [];
    for (let layer = 1; layer <= high; layer++) {
      cells.push(h("span", { class: "name" }, `layer ${layer}`));
      for (let number = 1; number <= wide; number++) {
        const head = own.find((one) => one.layer === layer && one.head === number);
        if (!head) { cells.push(h("span", {})); continue; }
        const button = h("button", { type: "button", class: "head-role", onclick: () => choose(head) }, h("span", {}, SHORT[head.role] ?? head.role), h("small", {}, head.role === "mixed" ? `${fixed(head.entropy, 1)} bits` : percent(shareOf(head))));
        buttons.set(head, button);
        cells.push(button);
      }
    }
    const grid = h("div", { class: "role-board", role: "group", "aria-label": KIND_TITLES[kind] }, h("span", {}), Array.from({ length: wide }, (_, i) => h("span", { class: "name" }, `head ${i + 1}`)), cells);
    grid.style.setProperty("--columns", wide);
    roving(grid, () => own.map((head) => buttons.get(head)).filter(Boolean), () => wide);
    return h("div", { class: "board-block" }, h("h3", {}, KIND_TITLES[kind]), h("div", { class: "scroll" }, grid));
  }

  function choose(head) {
    chosen = head;
    draw();
    live?.changed();
  }

  function draw() {
    for (const button of legend.children) button.setAttribute("aria-pressed", button.dataset.role === filter);
    for (const [head, button] of buttons) {
      const colour = sequential(shareOf(head) * 0.8);
      button.style.setProperty("background", colour);
      button.style.setProperty("color", inkOn(colour));
      button.classList.toggle("faded", filter !== null && head.role !== filter);
      button.setAttribute("aria-pressed", head === chosen);
      button.setAttribute("aria-label", `${headTitle(head)}: ${roleTitle(head.role)}${head.role === "mixed" ? "" : `, ${percent(shareOf(head))} of its attention`}, entropy ${fixed(head.entropy)} bits`);
    }
    drawDetail();
  }

  function drawDetail() {
    const shown = names.filter((name) => chosen.uniform[name]).sort((a, b) => chosen.shares[b] - chosen.shares[a]);
    replace(detail, h("h2", {}, headTitle(chosen)),
      h("p", {}, chosen.role === "mixed" ? "No role: nothing takes half of its attention and twice the share of uniform attention." : ["Attends mostly to: ", h("b", {}, roleTitle(chosen.role)), "."], ` Entropy ${fixed(chosen.entropy)} bits${chosen.kind === "cross" ? "" : `, mean distance ${fixed(chosen.distance, 1)} tokens`}.`),
      h("ol", { class: "role-shares" }, shown.map((name) => h("li", { class: name === chosen.role ? "chosen" : "" }, h("span", { class: "name" }, roleTitle(name)),
        h("span", { class: "gauge after", "aria-hidden": "true" }, h("span", { style: { "inline-size": `${(chosen.shares[name] * 100).toFixed(2)}%` } }), h("i", { style: { "inset-inline-start": `${(chosen.uniform[name] * 100).toFixed(2)}%` } })),
        h("span", { class: "amount" }, percent(chosen.shares[name]), h("small", {}, ` uniform ${percent(chosen.uniform[name])}`))))),
      h("p", { class: "hint" }, "The tick is what uniform attention would give. Shares overlap: the previous token may be punctuation."),
      live?.open ? h("button", { type: "button", onclick: () => live.open(chosen.kind, chosen.layer, chosen.head) }, "Open its attention map") : null);
  }

  replace(root, h("div", { class: "view head-summary" },
    h("p", { class: "caution" }, `Measured on ${counted(texts, "text")}, not guessed: a head has a role if at least half of its attention, and twice what uniform attention would give, goes there. Where a head attends is not yet what it does: for that, intervene.`),
    legend, h("div", { class: "role-split" }, h("section", { "aria-label": "Heads" }, h("h2", {}, "Every head by layer"), h("div", { class: "boards" }, kinds.map(boardOf)), table.element), detail)));
  draw();
  const stop = onTheme(draw);
  const key = (head) => `${head.kind}.${head.layer}.${head.head}`;
  return {
    state: () => ({ head: key(chosen), ...(filter ? { filter } : {}) }),
    restore(state) {
      chosen = heads.find((head) => key(head) === state.head) ?? chosen;
      filter = roles.includes(state.filter) ? state.filter : null;
      draw();
    },
    destroy() { stop(); root.replaceChildren(); },
  };
}

const headTitle = ({ kind, layer, head }) => `${KIND_TITLES[kind]}, layer ${layer}, head ${head}`;
