// Norms along the residual stream: one line per token, the mean, and a token of choice.
import { h, svg, replace } from "../lib/element.js";
import { shortened, tokenList, tokenName } from "../lib/tokens.js";
import { behind, dataTable } from "../lib/table.js";
import { fixed } from "../lib/numbers.js";

const HIGH = 240, LEFT = 44, BELOW = 34, ABOVE = 12, RIGHT = 14;
const MOST_NORM_LINES = 100; // beyond that, bands tell more than lines
const STACK_TITLES = { encoder: "Encoder, by source token", decoder: "Decoder, by token that was read" };

// data: a LogitLens of the Python API; draws `norms` of every stack
export function normsPart(data) {
  const charts = Object.entries(data.norms ?? {}).map(([stack, values]) => normChart(stack, values, tokenList(stack === "encoder" ? data.source_pieces : data.read_pieces)));
  const element = h("section", { "aria-label": "Residual stream" }, h("h2", {}, "Norms along the residual stream"),
    h("p", { class: "hint" }, "Every layer adds to a token's vector. Its Euclidean norm shows where much is added; in a pre-norm model it grows, in a post-norm model every layer ends with a norm and it hardly changes."),
    h("div", { class: "norm-charts" }, charts.map((chart) => chart.element)));
  return {
    element,
    draw: () => { for (const chart of charts) chart.draw(); },
    state: () => ({}),
    restore: () => {},
    destroy: () => { for (const chart of charts) chart.destroy(); },
  };
}

const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

function normChart(stack, values, tokens) {
  const means = values.map(meanOf), largest = Math.max(1e-6, ...values.flat()), names = tokens.map(tokenName);
  let chosen = -1;
  const choice = h("select", { "aria-label": `${stack}: token`, onchange: () => { chosen = Number(choice.value); draw(); } },
    h("option", { value: "-1" }, "mean of all tokens"), names.map((name, i) => h("option", { value: String(i) }, `${i + 1} ${shortened(name, 24)}`)));
  const place = h("div", { class: "norm-chart" }), said = h("p", { class: "readout" });
  const table = behind(() => dataTable({ caption: `${STACK_TITLES[stack]}: Euclidean norms`, columns: ["Token", ...values.map((_, i) => (i ? `layer ${i}` : "embedding"))],
    rows: [["mean", ...means.map((value) => fixed(value, 3))], ...names.map((name, i) => [name, ...values.map((layer) => fixed(layer[i], 3))])] }), `Norms of the ${stack} as a table`);
  const element = h("div", {}, h("h3", {}, STACK_TITLES[stack]), h("label", { class: "controls tight" }, "Marked ", choice), place, said, table.element);
  const observer = new ResizeObserver(() => draw());
  observer.observe(place);

  function draw() {
    const width = Math.max(220, place.clientWidth || 480), bottom = HIGH - BELOW, steps = Math.max(1, values.length - 1);
    const x = (layer) => LEFT + ((width - LEFT - RIGHT) * layer) / steps, y = (norm) => bottom - ((bottom - ABOVE) * norm) / largest;
    const line = (own, kind) => svg("polyline", { class: kind, points: own.map((value, layer) => `${x(layer).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
    const ticks = niceTicks(largest), every = Math.ceil(values.length / Math.max(2, Math.floor((width - LEFT) / 64)));
    const marked = chosen < 0 ? means : values.map((layer) => layer[chosen]);
    replace(place, svg("svg", { width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, role: "img", "aria-label": `${STACK_TITLES[stack]}: ${sentence()}` },
      ticks.map((value) => [svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(value))]),
      values.map((_, layer) => (layer % every ? null : svg("text", { x: x(layer), y: bottom + 18, "text-anchor": layer ? (layer === steps ? "end" : "middle") : "start" }, layer ? (every > 1 || width < 95 * values.length ? `${layer}` : `layer ${layer}`) : "embedding"))),
      tokens.length > MOST_NORM_LINES ? bands(values, x, y) : tokens.map((_, i) => line(values.map((layer) => layer[i]), "one")), line(means, "mean"), chosen < 0 ? null : line(marked, "chosen"),
      marked.map((value, layer) => svg("circle", { class: chosen < 0 ? "mean" : "chosen", cx: x(layer), cy: y(value), r: 3.5 }))));
    said.textContent = sentence();
  }

  function sentence() {
    const marked = chosen < 0 ? means : values.map((layer) => layer[chosen]), from = marked[0], to = marked[marked.length - 1];
    return `${chosen < 0 ? "The mean norm" : `The norm of “${names[chosen]}”`} goes from ${fixed(from, 1)} to ${fixed(to, 1)}${from > 0 ? ` (× ${fixed(to / from, 1)})` : ""}; ${tokens.length > MOST_NORM_LINES ? "the bands hold all tokens, and the middle half of them" : "thin lines are single tokens"}.`;
  }

  draw();
  return { element, draw, destroy: () => observer.disconnect() };
}

// All tokens, and the middle half of them, as areas.
function bands(values, x, y) {
  const sorted = values.map((layer) => [...layer].sort((a, b) => a - b));
  const at = (share) => sorted.map((layer) => layer[Math.round(share * (layer.length - 1))]);
  const area = (low, high) => svg("polygon", { class: "band", points: [...at(high).map((value, i) => [x(i), y(value)]), ...at(low).map((value, i) => [x(i), y(value)]).reverse()]
    .map((point) => point.map((one) => one.toFixed(1)).join(",")).join(" ") });
  return [area(0, 1), area(0.25, 0.75)];
}

function niceTicks(largest) {
  const raw = largest / 4, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
  return Array.from({ length: Math.floor(largest / step) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}
