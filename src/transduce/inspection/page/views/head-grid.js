// Every head as a thumbnail: layers × heads, and the means; drawn when they are seen.
import { h, replace, whenSeen } from "../lib/element.js";
import { paintDots } from "../lib/draw.js";
import { roving } from "../lib/keys.js";
import { MEAN, headName, largestWeight, reducedMap, rooted } from "./map-store.js";

const DOTS = 96; // a thumbnail's resolution

// choose(layer, head): one was selected. role(layer, head): its measured role as text, or null.
export function headGrid(store, { choose, role }) {
  const element = h("div", { class: "head-grid", role: "group", "aria-label": "Heads by layer" });
  let kind = null, buttons = [], observer = null;

  function draw(button) {
    const [layer, head] = button.dataset.head.split(".").map(Number), { rows, columns } = store.data.kinds[kind], of = kind;
    store.map(kind, layer, head).then((map) => {
      if (kind !== of) return;
      const { values, high, wide } = reducedMap(map, rows.length, columns.length, DOTS);
      const most = Math.max(0.3, Math.min(1, largestWeight(values, wide))); // long texts have small weights; diffuse heads stay pale
      paintDots(button.querySelector("canvas"), rooted(values), high, wide, Math.sqrt(most));
      button.classList.add("drawn");
    }, () => button.classList.add("failed"));
  }

  function cell(layer, head) {
    const known = head === MEAN ? null : role(layer, head);
    const name = headName(layer, head) + (known ? `: ${known}` : "");
    const button = h("button", { type: "button", "data-head": `${layer}.${head}`, "aria-label": name, title: name, onclick: () => choose(layer, head) },
      h("canvas", { "aria-hidden": "true", width: "1", height: "1" }), known ? h("span", { class: "role" }, known) : null);
    buttons.push(button);
    return button;
  }

  function show(next) {
    kind = next;
    buttons = [];
    observer?.disconnect();
    observer = whenSeen(draw);
    const { layers, heads } = store.data.kinds[kind];
    element.style.setProperty("--heads", heads + 1);
    element.classList.toggle("many", heads > 8);
    const top = [h("span", {}), h("span", { class: "name" }, "mean"), Array.from({ length: heads }, (_, i) => h("span", { class: "name" }, `head ${i + 1}`))];
    const rows = Array.from({ length: layers }, (_, i) => [h("span", { class: "name" }, `layer ${i + 1}`), Array.from({ length: heads + 1 }, (_, head) => cell(i + 1, head))]);
    const all = layers > 1 ? [h("span", { class: "name" }, "all"), cell(MEAN, MEAN), Array.from({ length: heads }, () => h("span", {}))] : [];
    replace(element, top, rows, all);
    for (const button of buttons) observer.observe(button);
    keys.renew();
  }

  const keys = roving(element, () => buttons, () => (kind ? store.data.kinds[kind].heads + 1 : 1));

  function mark(layer, head) {
    for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.head === `${layer}.${head}`);
  }

  return { element, show, mark, redraw: () => { for (const button of buttons) if (button.classList.contains("drawn")) draw(button); }, destroy: () => observer?.disconnect() };
}
