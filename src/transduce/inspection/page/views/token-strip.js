// The text itself, linked with the map: point at a token, and what it attends to is shaded.
import { h, replace } from "../lib/element.js";
import { inkOn, sequential } from "../lib/draw.js";
import { roving } from "../lib/keys.js";
import { direction, tokenText } from "../lib/tokens.js";

export function tokenStrip(link) {
  const element = h("div", { class: "token-strip" });
  let tokens = { rows: [], columns: [] }, map = null, wide = 0, largest = 1, lit = [];

  function line(names, label, act, marked) {
    const items = names.map((name, index) => {
      const item = act ? h("button", { type: "button" }, tokenText(name)) : h("span", {}, tokenText(name));
      item.classList.add("token");
      if (!name.starts) item.classList.add("joined");
      if (marked(index)) item.classList.add("generated");
      if (act) {
        item.addEventListener("pointerenter", () => link.set(index, null));
        item.addEventListener("focus", () => link.set(index, null));
        item.addEventListener("click", () => link.pin(index, null));
      }
      return item;
    });
    const text = names.map((name) => name.text).join(" ");
    const place = h("p", { dir: direction(text), role: act ? "group" : null, "aria-label": act ? label : null },
      h("span", { class: "side" }, label), items.map((item, index) => [names[index].starts && index ? " " : null, item, names[index].text.includes("↵") ? h("br", {}) : null]));
    place.addEventListener("pointerleave", () => link.set(null, null));
    if (act) roving(place, () => items);
    return { place, items };
  }

  // same: rows and columns are the same text. labels: what each is called.
  function show(names, same, labels, generated = 0) {
    const isNew = (index) => index >= names[0].length - generated;
    const rows = line(names[0], labels[0], true, generated ? isNew : () => false);
    const columns = same ? rows : line(names[1], labels[1], false, () => false);
    tokens = { rows: rows.items, columns: columns.items };
    wide = names[1].length;
    lit = [];
    replace(element, same ? rows.place : [columns.place, rows.place]);
  }

  function light() {
    for (const item of lit) { item.classList.remove("at"); for (const name of ["background", "color"]) item.style.removeProperty(name); }
    lit = [];
    const { row, column } = link;
    const mark = (item) => { if (item) { item.classList.add("at"); lit.push(item); } };
    if (row !== null && map) tokens.columns.forEach((item, index) => {
      const weight = map[row * wide + index];
      if (weight < 0.005 * largest) return;
      const shade = sequential(Math.sqrt(Math.min(1, weight / largest)) * 0.7);
      item.style.setProperty("background", shade);
      item.style.setProperty("color", inkOn(shade));
      lit.push(item);
    });
    if (row !== null) mark(tokens.rows[row]);
    if (column !== null) mark(tokens.columns[column]);
  }

  return { element, show, light, setMap: (next, most) => { map = next; largest = most; light(); } };
}
