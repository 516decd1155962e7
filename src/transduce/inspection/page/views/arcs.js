// Attention from one word, drawn as arcs over the sentence: as wide as it is strong. A narrow place stacks the words.
import { h, svg, replace, append, perFrame } from "../lib/element.js";
import { direction, tokenText } from "../lib/tokens.js";
import { percent } from "../lib/numbers.js";

const WIDEST = 9; // pixels of an arc of weight 1
const LABELLED = 0.095; // weights from here on are written

// words: [{ text, special }], from: index of the word that attends, weights: one per word; `hue` names a class of colour.
export function arcs(root, { words, from, weights, hue = "", marked = [] }) {
  const picture = svg("svg", { class: "arcs-lines", "aria-hidden": "true" });
  const places = words.map((word, index) => h("span", { class: `arcs-word${index === from ? " from" : ""}${marked.includes(index) ? " marked" : ""}` },
    h("span", { class: "arcs-text" }, tokenText(word)), h("span", { class: "arcs-share" }, weights[index] >= LABELLED ? percent(weights[index]) : "")));
  const row = h("div", { class: "arcs-words" }, places.map((place, index) => (index ? [" ", place] : place)));
  const box = h("div", { class: `arcs ${hue}` }, picture, row), order = direction(words.map((word) => word.text).join(" "));
  replace(root, box);

  function draw() {
    box.classList.remove("stacked");
    const isStacked = row.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("stacked", isStacked);
    row.dir = isStacked ? "" : order; // in a column the lines stand on one side, whatever the language
    const frame = box.getBoundingClientRect();
    if (!frame.width) return;
    const boxes = places.map((place) => place.querySelector(".arcs-text").getBoundingClientRect());
    picture.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    const line = isStacked ? stackedLine(frame, boxes, from) : flatLine(frame, boxes, from);
    replace(picture);
    append(picture, weights.map((weight, index) => ({ weight, index })).filter(({ weight }) => weight >= 0.004)
      .sort((a, b) => a.weight - b.weight).map(({ weight, index }) => svg("path", { d: line(index), class: index === from ? "own" : "",
        "stroke-width": Math.max(0.75, weight * WIDEST).toFixed(2), opacity: (0.25 + 0.75 * Math.sqrt(weight)).toFixed(3) })));
  }

  const observer = new ResizeObserver(perFrame(draw));
  observer.observe(box);
  draw();
  return { destroy: () => observer.disconnect() };
}

function flatLine(frame, boxes, from) {
  const top = boxes[from].top - frame.top - 3, middle = (box) => (box.left + box.right) / 2 - frame.left, start = middle(boxes[from]);
  const farthest = Math.max(...boxes.map((box) => Math.abs(middle(box) - start)), 1);
  return (index) => {
    const end = middle(boxes[index]);
    if (index === from) return `M${start - 6} ${top}c-16 -22 28 -22 12 0`;
    const high = top - Math.max(14, (Math.abs(end - start) / farthest) * (top - 8) * 1.28);
    return `M${start} ${top}C${start} ${high} ${end} ${high} ${end} ${top}`;
  };
}

function stackedLine(frame, boxes, from) {
  const isTurned = getComputedStyle(document.documentElement).direction === "rtl";
  const edge = isTurned ? Math.max(...boxes.map((box) => box.right)) - frame.left + 4 : Math.min(...boxes.map((box) => box.left)) - frame.left - 4;
  const middle = (box) => (box.top + box.bottom) / 2 - frame.top, start = middle(boxes[from]), out = isTurned ? frame.width - edge : edge;
  const farthest = Math.max(...boxes.map((box) => Math.abs(middle(box) - start)), 1);
  return (index) => {
    const end = middle(boxes[index]), reach = index === from ? 14 : 12 + (Math.abs(end - start) / farthest) * out * 1.15;
    const x = isTurned ? edge + reach : edge - reach;
    return index === from ? `M${edge} ${start - 5}C${x} ${start - 12} ${x} ${start + 12} ${edge} ${start + 5}` : `M${edge} ${start}C${x} ${start} ${x} ${end} ${edge} ${end}`;
  };
}

// Sums of the columns of each word.
export function byWord(weights, words) {
  return words.map(({ from, to }) => weights.subarray(from, to).reduce((sum, weight) => sum + weight, 0));
}
