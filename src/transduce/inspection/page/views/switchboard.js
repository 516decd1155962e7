// A board of switches: every head of every layer, each layer's attention and feed-forward network.
import { h, replace } from "../lib/element.js";
import { diverging, inkOn } from "../lib/draw.js";
import { roving } from "../lib/keys.js";
import { fixed, signed } from "../lib/numbers.js";

export const KIND_TITLES = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention", causal: "Self-attention" };
const STACK_OF = { encoder: "encoder", decoder: "decoder", causal: "decoder" };
const ORDER = ["encoder", "decoder", "cross", "causal"];

// A part of a model: { type: heads | attention | feed_forward, name: [kind, layer, head] | [kind or stack, layer] }
export const partKey = ({ type, name }) => `${type}:${name.join(".")}`;

export function partName({ type, name: [kind, layer, head] }) {
  if (type === "heads") return `${KIND_TITLES[kind]}, layer ${layer}, head ${head}`;
  if (type === "attention") return `${KIND_TITLES[kind]}, layer ${layer}`;
  return `Feed-forward network, ${kind} layer ${layer}`;
}

// Every part that can be switched off, kind by kind: [{ title, kind, columns, layers: [[part…]…] }]
export function partsOf(kinds, feedForward) {
  const found = [], stacks = new Set(Object.keys(feedForward ?? {}));
  for (const kind of ORDER.filter((one) => kinds?.[one])) {
    const { layers, heads } = kinds[kind], stack = stacks.has(STACK_OF[kind]) ? STACK_OF[kind] : null;
    if (stack) stacks.delete(stack);
    found.push({ title: KIND_TITLES[kind], kind, heads, columns: [...oneTo(heads).map(String), "attn", ...(stack ? ["FFN"] : [])],
      layers: oneTo(layers).map((layer) => [...oneTo(heads).map((head) => ({ type: "heads", name: [kind, layer, head] })), { type: "attention", name: [kind, layer] },
        ...(stack ? [{ type: "feed_forward", name: [stack, layer] }] : [])]) });
  }
  for (const stack of stacks) {
    found.push({ title: `Feed-forward networks, ${stack}`, kind: stack, heads: 0, columns: ["FFN"],
      layers: oneTo(feedForward[stack]).map((layer) => [{ type: "feed_forward", name: [stack, layer] }]) });
  }
  return found;
}

const oneTo = (length) => Array.from({ length }, (_, i) => i + 1);

// { heads: […], attention: […], feed_forward: […] } of a request <-> a Map of parts by key
export function partsRequest(parts) {
  const found = { heads: [], attention: [], feed_forward: [] };
  for (const { type, name } of parts) found[type].push(name);
  return found;
}

// onToggle(parts, off): some parts shall be off, or on. `enabled`: false in a saved page.
export function switchboardPart(boards, onToggle, enabled) {
  const buttons = new Map(); // by key: { button, part }
  let off = new Set(), effects = null;

  const toggle = (parts) => {
    const some = parts.some((part) => !off.has(partKey(part)));
    onToggle(parts, some);
  };

  function switchButton(part) {
    const button = h("button", { type: "button", class: `switch ${part.type}`, role: "switch", onclick: () => toggle([part]), disabled: !enabled });
    buttons.set(partKey(part), { button, part });
    return button;
  }

  const head = (text, label, parts) => h("button", { type: "button", class: "quiet head", "aria-label": label, title: label, disabled: !enabled, onclick: () => toggle(parts) }, text);

  function board({ title, columns, layers, heads }) {
    const ofHeads = (row) => (heads ? row.slice(0, heads) : row);
    const columnTitle = (name) => (name === "attn" ? "Whole attention of every layer" : name === "FFN" ? "Feed-forward network of every layer" : `Head ${name} of every layer`);
    const items = [head("all", `${title}: everything`, layers.flatMap(ofHeads)),
      ...columns.map((name, i) => head(name, `${title}: ${columnTitle(name).toLowerCase()}`, layers.map((row) => row[i])))];
    layers.forEach((row, i) => items.push(head(`layer ${i + 1}`, `${title}: all ${heads ? "heads" : ""} of layer ${i + 1}`, ofHeads(row)), ...row.map(switchButton)));
    const grid = h("div", { class: "board", role: "group", "aria-label": title }, items);
    grid.style.setProperty("--columns", columns.length);
    if (enabled) roving(grid, () => items, () => columns.length + 1);
    return h("div", { class: "board-block" }, h("h3", {}, title), h("div", { class: "scroll" }, grid));
  }

  function draw() {
    const scale = effects ? Math.max(0.1, ...Object.values(effects).map(({ difference }) => Math.abs(difference))) : 1;
    for (const [key, { button, part }] of buttons) {
      const whole = partKey({ type: "attention", name: part.name.slice(0, 2) });
      const isOff = off.has(key), covered = !isOff && part.type === "heads" && off.has(whole), effect = effects?.[key];
      button.setAttribute("aria-checked", !isOff);
      button.classList.toggle("covered", covered);
      const name = partName(part), measured = effect ? `; alone, it changes the log-probability by ${signed(effect.difference)}` : "";
      button.setAttribute("aria-label", `${name}${covered ? " (its whole attention is off)" : ""}${measured}`);
      button.title = `${name}: ${isOff ? "off" : "on"}${measured}`;
      const colour = effect ? diverging(Math.sign(effect.difference) * Math.sqrt(Math.abs(effect.difference) / scale)) : ""; // the root keeps small effects visible
      button.style.setProperty("--shade", colour);
      button.classList.toggle("measured", Boolean(effect));
      button.style.setProperty("color", effect ? inkOn(colour) : "");
      replace(button, effect ? h("span", {}, Math.abs(effect.difference) < 0.05 ? "0" : fixed(effect.difference, 1)) : null);
    }
  }

  const element = h("div", { class: "boards" }, boards.map(board));
  draw();
  return {
    element,
    set(keys) { off = new Set(keys); draw(); },
    shade(found) { effects = found; draw(); },
    disable(whether) { element.toggleAttribute("inert", whether); },
  };
}
