// One map, large: it scrolls and zooms, its labels stay, and only what is visible is drawn.
import { h, perFrame } from "../lib/element.js";
import { colours, enlargement, paintDots, sharp } from "../lib/draw.js";
import { clamp } from "../lib/numbers.js";
import { shortened, tokenName } from "../lib/tokens.js";
import { rooted } from "./map-store.js";

const CELL = { least: 5, most: 56, readable: 15, roomy: 38 }; // in CSS pixels; from `readable` on every label is shown
const LABEL_FONT = "system-ui, sans-serif";

// link: { row, column, set(row, column), pin(row) } shared with other pictures of the same map
export function heatMap(link, { label = "Heat map" } = {}) {
  const canvas = h("canvas", { "aria-hidden": "true" }), space = h("div", { class: "space" }, canvas);
  const box = h("div", { class: "heat-map", tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-label": `${label}: arrow keys move, plus and minus zoom` }, space);
  const dots = document.createElement("canvas");
  let map = null, names = [[], []], cell = 20, left = 0, top = 0, largest = 1, fitted = true, enlarged = 1;

  function measure() {
    const context = canvas.getContext("2d");
    enlarged = enlargement();
    context.font = `${12 * enlarged}px ${LABEL_FONT}`;
    const width = (list) => Math.ceil(Math.max(24 * enlarged, ...list.slice(0, 600).map((one) => context.measureText(labelOf(one)).width)) + 12);
    left = width(names[0]);
    top = width(names[1]);
  }

  function fit() {
    const [rows, columns] = names, wide = (box.clientWidth - left - 2) / columns.length, high = (Math.max(320, innerHeight * 0.72) - top - 16) / rows.length;
    return clamp(Math.floor(rows.length > 40 ? wide : Math.min(wide, high)), CELL.readable * enlarged, CELL.roomy * enlarged);
  }

  function resize() {
    if (!map || !box.clientWidth) return;
    if (fitted) cell = fit();
    const wide = left + names[1].length * cell + 2, high = top + names[0].length * cell + 2;
    space.style.setProperty("width", `${wide}px`);
    space.style.setProperty("height", `${high}px`);
    box.style.setProperty("height", `${Math.min(high + 14, Math.max(320, innerHeight * 0.72))}px`);
    draw();
  }

  const draw = perFrame(() => {
    if (!map || !box.isConnected) return;
    const width = Math.min(box.clientWidth, space.clientWidth), height = Math.min(box.clientHeight, space.clientHeight);
    const context = sharp(canvas, width, height), { scrollLeft: x, scrollTop: y } = box, [rows, columns] = names;
    const first = { row: Math.floor(y / cell), column: Math.floor(x / cell) };
    const last = { row: Math.min(rows.length, Math.ceil((y + height - top) / cell)), column: Math.min(columns.length, Math.ceil((x + width - left) / cell)) };
    context.imageSmoothingEnabled = false;
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, height - top);
    context.clip();
    context.drawImage(dots, left - x, top - y, columns.length * cell, rows.length * cell);
    drawLines(context, first, last, x, y);
    drawMark(context, x, y, width, height);
    context.restore();
    drawLabels(context, first, last, x, y);
  });

  function drawLines(context, first, last, x, y) { // a hairline between cells, where there is room for one
    if (cell < 12) return;
    context.strokeStyle = colours().edge;
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.beginPath();
    for (let r = first.row; r <= last.row; r++) { const at = Math.round(top - y + r * cell) + 0.5; context.moveTo(left, at); context.lineTo(left - x + names[1].length * cell, at); }
    for (let c = first.column; c <= last.column; c++) { const at = Math.round(left - x + c * cell) + 0.5; context.moveTo(at, top); context.lineTo(at, top - y + names[0].length * cell); }
    context.stroke();
    context.globalAlpha = 1;
  }

  function drawMark(context, x, y, width, height) {
    const { row, column } = link;
    context.strokeStyle = colours().mark;
    context.lineWidth = 2;
    if (row !== null) context.strokeRect(left - x + 1, top - y + row * cell + 1, names[1].length * cell - 2, cell - 2);
    if (column !== null) context.strokeRect(left - x + column * cell + 1, top - y + 1, cell - 2, Math.min(names[0].length * cell, height + y) - 2);
  }

  function drawLabels(context, first, last, x, y) {
    const { ink, mark } = colours(), every = Math.max(1, Math.ceil((12 * enlarged) / cell));
    context.textBaseline = "middle";
    const write = (text, lit, atX, atY, turn) => {
      context.save();
      context.translate(atX, atY);
      context.rotate(turn);
      context.font = `${lit ? "700 " : ""}${12 * enlarged}px ${LABEL_FONT}`;
      context.fillStyle = lit ? mark : ink;
      context.fillText(text, 0, 0);
      context.restore();
    };
    context.textAlign = "right";
    context.save();
    context.beginPath();
    context.rect(0, top - 1, left, 1e5);
    context.clip();
    for (let r = first.row; r < last.row; r++) if (r % every === 0 || r === link.row) {
      if (r !== link.row && link.row !== null && every > 1 && Math.abs(r - link.row) < every) continue;
      write(labelOf(names[0][r]), r === link.row, left - 6, top - y + (r + 0.5) * cell, 0);
    }
    context.restore();
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(left - 1, 0, 1e5, top);
    context.clip();
    for (let c = first.column; c < last.column; c++) if (c % every === 0 || c === link.column) {
      if (c !== link.column && link.column !== null && every > 1 && Math.abs(c - link.column) < every) continue;
      write(labelOf(names[1][c]), c === link.column, left - x + (c + 0.5) * cell, top - 6, -Math.PI / 2);
    }
    context.restore(); // a clip that stays would hide everything else in the next frame
  }

  function zoom(factor, at = null) {
    const before = cell, held = at ?? { x: box.clientWidth / 2, y: box.clientHeight / 2 };
    cell = clamp(Math.round(cell * factor) + (Math.round(cell * factor) === cell ? Math.sign(factor - 1) : 0), CELL.least, CELL.most);
    fitted = false;
    resize();
    box.scrollLeft = ((box.scrollLeft + held.x - left) * cell) / before + left - held.x; // what is under the pointer stays there
    box.scrollTop = ((box.scrollTop + held.y - top) * cell) / before + top - held.y;
  }

  function pointed(event) {
    const edge = box.getBoundingClientRect();
    const column = Math.floor((event.clientX - edge.left - left + box.scrollLeft) / cell), row = Math.floor((event.clientY - edge.top - top + box.scrollTop) / cell);
    const inside = event.clientX - edge.left >= left && event.clientY - edge.top >= top && row < names[0].length && column < names[1].length;
    return inside && row >= 0 && column >= 0 ? { row, column } : { row: null, column: null };
  }

  function reveal() { // after a key, not after the mouse
    const { row, column } = link, room = { x: box.clientWidth - left, y: box.clientHeight - top };
    if (column !== null) box.scrollLeft = clamp(box.scrollLeft, (column + 1) * cell - room.x + 16, column * cell);
    if (row !== null) box.scrollTop = clamp(box.scrollTop, (row + 1) * cell - room.y + 16, row * cell);
  }

  box.addEventListener("pointermove", (event) => { const { row, column } = pointed(event); link.set(row, column); });
  box.addEventListener("pointerleave", () => link.set(null, null));
  box.addEventListener("click", (event) => { const { row, column } = pointed(event); if (row !== null) link.pin(row, column); });
  box.addEventListener("scroll", draw, { passive: true });
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const edge = box.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - edge.left, y: event.clientY - edge.top });
  }, { passive: false });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "Enter" && link.row !== null) link.pin(link.row, link.column);
    else if (!step) return;
    event.preventDefault();
    if (!step) return;
    link.set(clamp((link.row ?? 0) + step[0], 0, names[0].length - 1), clamp((link.column ?? 0) + step[1], 0, names[1].length - 1), true);
    reveal();
  });
  const watcher = new ResizeObserver(() => resize());
  watcher.observe(box);

  return {
    element: box,
    show(next, nextNames, most) {
      map = next;
      names = nextNames;
      largest = most;
      paintDots(dots, rooted(map), names[0].length, names[1].length, Math.sqrt(largest));
      measure();
      resize();
    },
    draw, reveal,
    zoomIn: () => zoom(1.25), zoomOut: () => zoom(0.8), fit: () => { fitted = true; resize(); },
    get cell() { return cell; },
    setCell(size) { cell = clamp(size, CELL.least, CELL.most); fitted = false; resize(); },
    get fitted() { return fitted; },
    destroy: () => watcher.disconnect(),
  };
}

const labelOf = (name) => shortened(tokenName(name), 16);
