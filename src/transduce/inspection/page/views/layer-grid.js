// A table of layers × tokens whose labels stay while it scrolls; columns are built when they come into view.
import { h, replace, perFrame, whenSeen } from "../lib/element.js";
import { inkOn, sequential } from "../lib/draw.js";

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// rows: names; columns: how many; head(column): its label; cell(row, column) -> { text, shade: 0 … 1, mark }
// onPoint(row, column, chosen): a cell is pointed at, or chosen by a click or the keyboard
export function layerGrid({ label, rows, columns, head, cell, onPoint }) {
  const strip = h("div", { class: "layer-strip" });
  const element = h("div", { class: "layer-grid", tabindex: "0", role: "group", "aria-label": `${label}; arrow keys choose a cell`, "aria-roledescription": "heat table" },
    h("div", { class: "layer-names" }, h("div", { class: "corner" }), rows.map((name) => h("div", { class: "name" }, name))), strip);
  const holders = Array.from({ length: columns }, (_, column) => h("div", { class: "layer-column", "data-column": String(column) }));
  let observer = null, at = [0, 0];

  function build(holder) {
    const column = Number(holder.dataset.column);
    replace(holder, h("div", { class: "head" }, head(column)), rows.map((_, row) => {
      const { text, shade, mark = false } = cell(row, column), colour = sequential(shade);
      return h("div", { class: mark ? "cell marked" : "cell", "data-row": String(row), style: { background: colour, color: inkOn(colour) } }, h("bdi", { dir: "auto" }, text));
    }));
    if (column === at[1]) markCell();
  }

  function markCell() {
    element.querySelector(".cell.chosen")?.classList.remove("chosen");
    holders[at[1]]?.children[at[0] + 1]?.classList.add("chosen");
  }

  function choose(row, column, scrolls = true) {
    at = [Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns - 1, column))];
    if (!holders[at[1]]) return;
    if (!holders[at[1]].children.length) build(holders[at[1]]);
    markCell();
    if (scrolls) holders[at[1]].children[at[0] + 1].scrollIntoView({ block: "nearest", inline: "nearest" });
    onPoint(...at, true);
  }

  const placeOf = (event) => {
    const found = event.target.closest?.(".cell");
    return found ? [Number(found.dataset.row), Number(found.parentElement.dataset.column)] : null;
  };
  const point = perFrame((place) => onPoint(...(place ?? at), !place));
  element.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") point(placeOf(event)); });
  element.addEventListener("pointerleave", () => point(null));
  element.addEventListener("click", (event) => { const place = placeOf(event); if (place) choose(...place, false); });
  element.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const turned = getComputedStyle(strip).direction === "rtl" ? -1 : 1;
    choose(at[0] + move[0], at[1] + move[1] * turned);
  });

  // Draw every cell again: another quantity, another theme.
  function draw() {
    observer?.disconnect();
    observer = whenSeen(build, "600px");
    for (const holder of holders) { if (holder.children.length) build(holder); else observer.observe(holder); }
    markCell();
  }

  replace(strip, holders);
  element.style.setProperty("--rows", rows.length);
  draw();
  return { element, strip, draw, choose, at: () => [...at], destroy: () => observer?.disconnect() };
}
