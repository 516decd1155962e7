// One chart: curves of one quantity, one for each run, with axes, a guide that can be moved, and a table of the numbers.
import { h, svg, append, replace } from "../lib/element.js";
import { behind, dataTable } from "../lib/table.js";

export function written(value) { // four digits that count
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e12)) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
export function tickLabel(value) {
  const clean = Number(value.toPrecision(10)), size = Math.abs(clean);
  if (size >= 1e6 && size < 1e15) return compact.format(clean);
  if (size >= 1e3 && size < 1e6) return clean.toLocaleString("en");
  return clean !== 0 && (size < 1e-3 || size >= 1e15) ? String(Number(clean.toPrecision(3))) : String(clean);
}

function evenTicks(low, high, most) { // at 1, 2 or 5 times a power of ten
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high, most) { // powers of ten; 2 and 5 times them where there is room
  if (high / low < 8) return evenTicks(low, high, most).filter((tick) => tick > 0);
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const times = (last - first) * 3 <= most * 2 ? [1, 2, 5] : [1], stride = Math.ceil((last - first) / most);
  const ticks = [];
  for (let power = first; power <= last; power += stride) ticks.push(...times.map((each) => each * 10 ** power));
  return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

function nearest(places, x) { // the index of the place that is nearest; places rise
  let low = 0, high = places.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - places[low - 1] <= places[low] - x ? low - 1 : low;
}

export class Chart {
  // `page` says how updates become places (placesOf), what to call them (axis), how far they go (reach), and is told where
  // somebody points (point).
  constructor(spec, page) {
    Object.assign(this, { spec, page, runs: [], curves: [], logarithmic: false, at: null });
    this.readout = h("p", { class: "readout" });
    this.plot = svg("svg", { class: "plot", tabindex: "0", role: "slider", "aria-label": spec.title, "aria-valuemin": "0" });
    this.about = h("p", { class: "hint" });
    this.table = behind(() => this.numbers(), "Numbers");
    this.element = h("section", { class: "chart" }, h("header", {}, h("h3", {}, spec.title), spec.logarithmic ? this.scaleSwitch() : null), this.readout, this.plot, this.about, this.table.element);
    this.listen();
  }

  setRuns(runs) {
    this.runs = runs;
    const trend = runs.some((run) => run.means[this.spec.name]) ? " Pale: the values; strong: their mean, interval by interval." : "";
    this.about.textContent = this.spec.about + trend;
    this.draw();
    this.table.renew();
  }

  scaleSwitch() {
    const button = h("button", { type: "button", title: "Logarithmic scale", "aria-label": `Logarithmic scale of ${this.spec.title.toLowerCase()}`, "aria-pressed": false,
      onclick: () => {
        this.logarithmic = !this.logarithmic;
        button.setAttribute("aria-pressed", this.logarithmic);
        this.draw();
      } }, "log");
    return button;
  }

  numbers() {
    const rows = new Map();
    for (const curve of this.curves) curve.updates.forEach((update, i) => {
      if (!rows.has(update)) rows.set(update, this.runs.map(() => ""));
      rows.get(update)[curve.index] = written(curve.values[i]);
    });
    const sorted = [...rows.entries()].sort((a, b) => a[0] - b[0]);
    return dataTable({ columns: ["update", ...this.runs.map((run) => run.label)], rows: sorted.map(([update, values]) => [update.toLocaleString("en"), ...values]) });
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => {
      this.page.point(this.xOf(event.clientX - this.plot.getBoundingClientRect().left));
    });
    this.plot.addEventListener("pointerleave", () => this.page.point(null));
    this.plot.addEventListener("blur", () => this.page.point(null));
    this.plot.addEventListener("keydown", (event) => {
      const all = [...new Set(this.curves.flatMap((curve) => Array.from(curve.places)))].sort((a, b) => a - b);
      const here = this.at === null ? all.length - 1 : nearest(all, this.at), stride = Math.max(1, Math.round(all.length / 20));
      const to = { ArrowLeft: here - 1, ArrowRight: here + 1, ArrowDown: here - 1, ArrowUp: here + 1, PageDown: here - stride,
        PageUp: here + stride, Home: 0, End: all.length - 1 }[event.key];
      if (event.key === "Escape") this.page.point(null);
      if (to === undefined || !all.length) return;
      event.preventDefault();
      this.page.point(all[Math.max(0, Math.min(all.length - 1, to))]);
    });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.plot);
  }

  // ---- scales

  measure() {
    this.curves = this.runs.flatMap((run, index) => {
      const curve = run.curves[this.spec.name];
      return curve ? [{ run, index, updates: curve[0], values: curve[1], places: this.page.placesOf(run, curve[0]) }] : [];
    });
    const log = this.logarithmic, all = this.curves.flatMap((curve) => curve.values).filter((value) => !log || value > 0);
    let low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!all.length) [low, high] = [1, 10];
    if (!log && this.spec.zero) low = Math.min(0, low);
    const space = (log ? Math.log(high / low) : high - low) * 0.06 || (log ? 0.5 : Math.abs(high) * 0.1 || 1);
    this.low = log ? low / Math.exp(space) : this.spec.zero && low === 0 ? 0 : low - space;
    this.high = log ? high * Math.exp(space) : high + space;
    const box = this.plot.getBoundingClientRect();
    Object.assign(this, { width: box.width, height: box.height, right: box.width - 12, top: 8, bottom: box.height - 22 });
  }

  y(value) {
    const share = this.logarithmic ? Math.log(value / this.low) / Math.log(this.high / this.low)
      : (value - this.low) / (this.high - this.low);
    return this.bottom - share * (this.bottom - this.top);
  }

  x(place) { return this.left + (place / this.page.reach()) * (this.right - this.left); }
  xOf(pixel) { return Math.max(0, Math.min(1, (pixel - this.left) / (this.right - this.left))) * this.page.reach(); }

  // ---- drawing

  draw() {
    this.measure();
    if (this.width < 80) return;
    replace(this.plot);
    this.drawAxes();
    for (const curve of this.curves) this.drawCurve(curve);
    if (this.spec.name === "loss") this.drawSkipped();
    this.guide = svg("g");
    this.plot.append(this.guide);
    this.show(this.at);
  }

  drawAxes() {
    const most = Math.max(2, Math.floor((this.bottom - this.top) / 34));
    const ticks = (this.logarithmic ? logTicks : evenTicks)(this.low, this.high, most), texts = ticks.map(tickLabel);
    this.left = 14 + 6.4 * Math.max(2, ...texts.map((text) => text.length));
    const label = (text, x, y, anchor) => { this.plot.append(svg("text", { x, y, "text-anchor": anchor }, text)); };
    ticks.forEach((tick, i) => {
      const y = this.y(tick);
      this.plot.append(svg("line", { class: "gridline", x1: this.left, x2: this.right, y1: y, y2: y }));
      label(texts[i], this.left - 6, y + 4, "end");
    });
    const across = evenTicks(0, this.page.reach(), Math.max(2, Math.floor((this.right - this.left) / 80)));
    for (const tick of across) {
      const x = this.x(tick);
      this.plot.append(svg("line", { class: "axis", x1: x, x2: x, y1: this.bottom, y2: this.bottom + 4 }));
      label(tickLabel(tick), Math.min(x, this.right - 8), this.bottom + 17, "middle");
    }
    this.plot.append(svg("line", { class: "axis", x1: this.left, x2: this.right, y1: this.bottom, y2: this.bottom }));
  }

  drawCurve({ run, index, updates, values, places }) {
    const color = `run${index}`, few = values.length <= 60, drawn = (i) => !this.logarithmic || values[i] > 0;
    const mean = run.means[this.spec.name];
    this.drawLine(mean ? `${color} pale` : color, places, values);
    if (mean) this.drawLine(color, this.page.placesOf(run, mean[0]), mean[1]);
    values.forEach((value, i) => {
      if (!drawn(i)) return;
      if (few) this.dot(this.plot, index, this.x(places[i]), this.y(value), 2.4, `dot ${color}`);
      if (this.page.judged(this.spec.name) && updates[i] === run.best) {
        this.plot.append(svg("circle", { class: `best ${color}`, cx: this.x(places[i]), cy: this.y(value), r: 6 }));
      }
    });
  }

  drawLine(name, places, values) { // with a gap where a logarithm has nothing to show
    let line = "", down = false;
    values.forEach((value, i) => {
      const there = !this.logarithmic || value > 0;
      if (there) line += `${down ? "L" : "M"}${this.x(places[i]).toFixed(1)} ${this.y(value).toFixed(1)}`;
      down = there;
    });
    this.plot.append(svg("path", { class: name, d: line }));
  }

  drawSkipped() { // a stroke at the foot for each update that was skipped
    this.runs.forEach((run, index) => {
      const line = this.page.placesOf(run, run.skipped).map((place) => `M${this.x(place).toFixed(1)} ${this.bottom}v-9`).join("");
      if (line) this.plot.append(svg("path", { class: `skip run${index}`, d: line }));
    });
  }

  dot(parent, index, x, y, size, name) { // round for the first run, square for the second
    if (index === 0) parent.append(svg("circle", { class: name, cx: x, cy: y, r: size }));
    else parent.append(svg("rect", { class: name, x: x - size, y: y - size, width: 2 * size, height: 2 * size }));
  }

  show(at) { // the guide and the numbers at a place; without one, the last numbers
    this.at = at;
    if (!this.guide) return;
    this.guide.replaceChildren();
    this.readout.replaceChildren();
    if (at !== null) {
      this.guide.append(svg("line", { class: "guide", x1: this.x(at), x2: this.x(at), y1: this.top, y2: this.bottom }));
    }
    const said = [];
    for (const { run, index, updates, values, places } of this.curves) {
      const i = at === null ? values.length - 1 : nearest(places, at);
      const item = h("span", {}, this.runs.length > 1 ? h("i", { class: `key run${index}` }) : null, h("b", {}, written(values[i])), ` ${this.page.axis(places[i], updates[i])}`);
      append(this.readout, item);
      said.push((this.runs.length > 1 ? run.label + ": " : "") + item.textContent);
      if (at !== null && (!this.logarithmic || values[i] > 0)) {
        this.dot(this.guide, index, this.x(places[i]), this.y(values[i]), 4.5, `dot at run${index}`);
      }
    }
    this.plot.setAttribute("aria-valuemax", this.page.reach());
    this.plot.setAttribute("aria-valuenow", at === null ? this.page.reach() : at);
    this.plot.setAttribute("aria-valuetext", said.join("; "));
  }
}
