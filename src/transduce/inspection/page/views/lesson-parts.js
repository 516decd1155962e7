// What the steps of the tour are made of: words to choose from, labelled heat maps, bars, short texts.
import { h } from "../lib/element.js";
import { colours, paintDots } from "../lib/draw.js";
import { clamp, percent } from "../lib/numbers.js";
import { roving } from "../lib/keys.js";
import { direction, tokenText } from "../lib/tokens.js";

// "The **query** asks" -> text with bold words; _word_ is set as an example.
export function prose(text) {
  return text.split(/(\*\*[^*]+\*\*|_[^_]+_)/).map((part) => (part.startsWith("**") ? h("b", {}, part.slice(2, -2)) : part.startsWith("_") && part.length > 2 ? h("i", {}, part.slice(1, -1)) : part));
}

export const lead = (...texts) => h("div", { class: "lead" }, texts.map((text) => h("p", {}, typeof text === "string" ? prose(text) : text)));

export const note = (text) => h("p", { class: "hint lesson-note" }, typeof text === "string" ? prose(text) : text);

// One line that says what to do with the picture.
export const tryThis = (text) => h("p", { class: "try-this" }, h("b", {}, "Try: "), prose(text));

// `parts[i]` is the element of `tokens[i]`; the tokens of one word get a group that stays on one line.
export function byWords(tokens, parts) {
  const groups = [];
  tokens.forEach((token, i) => (token.starts || !i ? groups.push([parts[i]]) : groups.at(-1).push(parts[i])));
  return groups.map((group) => (group.length > 1 ? h("span", { class: "word-group" }, group) : group));
}

// The `most` neighbours of a place among `count`: { from, to }.
export function around(at, count, most) {
  const from = clamp(at - Math.floor(most / 2), 0, Math.max(0, count - most));
  return { from, to: Math.min(count, from + most) };
}

// A row of words or tokens; one is chosen. Without `choose` it only shows them.
export function wordRow(tokens, chosen, choose = null, { dim = () => false, under = () => null, label = "Word" } = {}) {
  const items = tokens.map((token, index) => h(choose ? "button" : "span", { type: choose ? "button" : null, class: `word-chip${index === chosen ? " chosen" : ""}${dim(index) ? " dim" : ""}${token.starts ? "" : " joined"}`,
    "aria-pressed": choose ? index === chosen : null, onclick: choose ? () => choose(index) : null }, tokenText(token), under(index) === null ? null : h("small", {}, under(index))));
  const row = h("div", { class: `word-row${choose ? " selectable" : ""}`, role: choose ? "group" : null, "aria-label": choose ? label : null, dir: direction(tokens.map((token) => token.text).join(" ")) }, byWords(tokens, items));
  if (choose) roving(row, () => items);
  if (choose && items[chosen]) requestAnimationFrame(() => { row.scrollTop = items[chosen].offsetTop - row.clientHeight / 2; }); // the row of a long text scrolls
  return row;
}

// A labelled map: values rows × columns; `scale` is "sequential" (0 … most) or "diverging" (-most … most).
export function smallMap({ values, rows, columns, names, most = null, scale = "diverging", label, tall = false }) {
  const largest = most ?? values.reduce((sofar, value) => Math.max(sofar, Math.abs(value)), 1e-9);
  const canvas = h("canvas", { role: "img", "aria-label": label });
  if (scale === "diverging") paintDots(canvas, Float32Array.from(values, (value) => (value / largest + 1) / 2), rows, columns, 1, colours().diverging);
  else paintDots(canvas, values, rows, columns, largest);
  return h("div", { class: `small-map${tall ? " square" : ""}` }, h("div", { class: "small-names", "aria-hidden": "true", style: { "grid-template-rows": `repeat(${rows}, 1fr)` } }, names.map((token) => h("span", {}, tokenText(token)))), canvas);
}

// Rows of name, bar and number.
export function bars(rows, { most = 1, text = percent } = {}) {
  return h("div", { class: "lesson-bars" }, rows.map(({ name, share, mark = "", said = null }) => h("div", { class: `lesson-bar ${mark}` },
    h("span", { class: "bar-name" }, name), h("span", { class: "fill-track" }, h("span", { class: "fill-bar", style: { "inline-size": `${Math.min(100, (share / most) * 100)}%` } })), h("span", { class: "bar-number" }, said ?? text(share)))));
}

// Three or four boxes with a large letter each.
export function boxes(items) {
  return h("div", { class: "lesson-boxes" }, items.map(({ letter, title, text, hue = "" }) => h("div", { class: `lesson-box ${hue}` }, h("span", { class: "big", "aria-hidden": "true" }, letter), h("div", {}, h("b", {}, title), h("p", {}, prose(text))))));
}

export function labelledSlider(label, { min, max, step, value, act, text }) {
  const shown = h("output", {}, text(value));
  const input = h("input", { type: "range", min: String(min), max: String(max), step: String(step), "aria-label": label, "aria-valuetext": text(value), value: String(value), oninput: () => {
    shown.textContent = text(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
    act(Number(input.value));
  } });
  return h("label", { class: "lesson-slider" }, h("span", {}, label), input, shown);
}
