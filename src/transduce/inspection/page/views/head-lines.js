// The two-column head view (Jones 2017; Vig 2019): queries left, keys right, a line for each weight above the threshold.
import { h, perFrame, replace } from "../lib/element.js";
import { colours, enlargement, sharp, sequential } from "../lib/draw.js";
import { roving } from "../lib/keys.js";
import { tokenText } from "../lib/tokens.js";

const ROW = 24; // height of a token in pixels, where a rem is 16; as in views.css
const MOST_LINES = 4000;

export function headLines(link) {
  const lists = ["Queries", "Keys"].map((label) => h("ol", { "aria-label": label }));
  const canvas = h("canvas", { "aria-hidden": "true" }), middle = h("div", { class: "between" }, canvas);
  const box = h("div", { class: "head-lines scroll", tabindex: "-1" }, lists[0], middle, lists[1]);
  let high = ROW, lines = [], largest = 1, names = [[], []], lit = [];

  function fill(list, side) {
    replace(list, names[side].map((name, index) => {
      const item = h("li", { tabindex: index ? "-1" : "0", title: name.text }, tokenText(name));
      if (!name.starts && !name.special) item.classList.add("joined");
      const enter = () => link.set(side ? null : index, side ? index : null);
      item.addEventListener("pointerenter", enter);
      item.addEventListener("focus", enter);
      item.addEventListener("click", () => { if (!side) link.pin(index, null); });
      return item;
    }));
  }

  const stroke = (context, [row, column, weight], width, offset) => {
    const from = row * high + high / 2 - offset, to = column * high + high / 2 - offset;
    context.globalAlpha = Math.min(1, 0.08 + 0.92 * weight);
    context.lineWidth = 1 + 2 * weight;
    context.beginPath();
    context.moveTo(0, from);
    context.bezierCurveTo(width * 0.4, from, width * 0.6, to, width, to);
    context.stroke();
  };

  const draw = perFrame(() => {
    if (!box.isConnected) return;
    high = ROW * enlargement();
    const width = middle.clientWidth, height = Math.min(box.clientHeight, Math.max(...names.map((list) => list.length)) * high);
    const context = sharp(canvas, width, height), { row, column } = link, any = row !== null || column !== null;
    const ours = (line) => (row === null || line[0] === row) && (column === null || line[1] === column);
    const offset = box.scrollTop, near = ([r, c]) => Math.max(r, c) * high + high > offset && Math.min(r, c) * high < offset + height;
    context.strokeStyle = `rgb(${colours().sequential[185].join(" ")})`;
    // with a cell under the pointer its row's lines are shown too, faintly
    for (const line of lines) if (near(line) && (!any || ours(line) || line[0] === row)) stroke(context, any && !ours(line) ? [line[0], line[1], line[2] * 0.3] : line, width, offset);
    light(row, column);
  });

  function light(row, column) { // shade the tokens at the other ends
    for (const item of lit) { item.classList.remove("at"); item.style.removeProperty("background"); }
    lit = [];
    const mark = (item, name) => { if (item) { item.classList.add(name); lit.push(item); } };
    const tint = (item, weight) => { if (item) { item.style.setProperty("background", sequential(weight * 0.45)); lit.push(item); } };
    if (row !== null) for (const line of lines) if (line[0] === row) tint(lists[1].children[line[1]], line[2]);
    if (row === null && column !== null) for (const line of lines) if (line[1] === column) tint(lists[0].children[line[0]], line[2]);
    if (row !== null) mark(lists[0].children[row], "at");
    if (column !== null) mark(lists[1].children[column], "at");
  }

  box.addEventListener("scroll", draw, { passive: true });
  box.addEventListener("pointerleave", () => link.set(null, null));
  const watcher = new ResizeObserver(draw);
  watcher.observe(box);
  const keys = lists.map((list) => roving(list, () => [...list.children]));

  return {
    element: box,
    // threshold: the smallest weight that is drawn; skip: leave out the first column
    show(map, nextNames, most, threshold, skip) {
      if (names[0] !== nextNames[0] || names[1] !== nextNames[1]) {
        names = nextNames;
        lists.forEach(fill);
        keys.forEach((one) => one.renew());
      }
      largest = most;
      const wide = names[1].length, found = [];
      for (let i = 0; i < map.length; i++) if (map[i] >= threshold && map[i] > 0 && !(skip && i % wide === 0)) found.push([Math.floor(i / wide), i % wide, Math.min(1, map[i] / largest)]);
      lines = found.length > MOST_LINES ? found.sort((a, b) => b[2] - a[2]).slice(0, MOST_LINES) : found;
      draw();
      return found.length;
    },
    draw,
    destroy: () => watcher.disconnect(),
  };
}
