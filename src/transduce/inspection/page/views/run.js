// One training run, or two side by side: summary, curves, sample translations, validations, events, settings, data.
import { h, replace, identity } from "../lib/element.js";
import { Chart, tickLabel, written } from "./chart.js";

const STEERING = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]|\p{Surrogate}/gu;
const MOST_WORDS = 1e6; // products of words, beyond which two texts are not compared

// Spaces, joiners and marks stay; what steers or turns the text is spelled out.
const plainText = (text) => text.replace(STEERING, (c) => `‹${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);

// data: what `transduce report` writes: { charts, runs, summary, recipe, data }. live: { changed() }, or null.
// `update(data)` shows newer data in place: a run that is still training.
export function runView(root, data, live = null) {
  let now = data, across = "update", reach = 1, charts = [], moments = [], moment = null;
  const isPair = () => now.runs.length > 1;
  const legend = h("ul", { class: "run-legend" }), summary = h("div", { class: "tables summary" });
  const axis = h("select", { onchange: () => { across = axis.value; live?.changed(); drawAll(); } });
  const chartPlace = h("div", { class: "charts" });
  const curves = h("div", {}, h("div", { class: "controls" }, h("h2", {}, "Curves"), h("label", {}, "X axis ", axis),
    h("span", { class: "hint" }, "Point at a curve, or focus a chart and use the arrow keys, Home and End.")), chartPlace);
  const nothing = h("p", { class: "empty" }, "Nothing has been logged yet.");
  const samples = sampleSection((update) => { moment = update === moments.at(-1) ? null : update; live?.changed(); });
  const checks = h("div", { class: "pair" }), notes = h("div", { class: "pair" }), recipe = h("div", { class: "tables" }), report = h("div", { class: "tables" });
  const checkSection = h("section", {}, h("h2", {}, "Validations"), checks);
  const only = h("input", { type: "checkbox", onchange: () => showRecipe() }), differing = h("label", {}, only, " Only what differs");
  const box = h("div", { class: "view run-view" }, legend, h("section", { class: "plain" }, h("h2", {}, "Summary"), summary), curves, nothing, samples.element, checkSection,
    h("section", {}, h("h2", {}, "Skipped updates and other events"), notes),
    h("section", {}, h("div", { class: "controls" }, h("h2", {}, "Recipe, filled in"), differing), recipe), h("section", {}, h("h2", {}, "Data"), report));
  replace(root, box);

  // ---- what the charts stand on

  function unit() {
    const longest = Math.max(0, ...now.runs.flatMap((run) => run.clocks.hours[1].slice(-1)));
    return longest >= 2 ? { name: "hours", short: "h", each: 1 } : { name: "minutes", short: "min", each: 60 };
  }

  const page = {
    placesOf(run, updates) {
      const each = across === "hours" ? unit().each : 1;
      return across === "update" ? updates : updates.map((update) => each * onLine(...run.clocks[across], update));
    },
    reach: () => reach,
    axis(place, update) {
      const where = `at update ${update.toLocaleString("en")}`;
      if (across === "update") return where;
      return `${where}, ${across === "hours" ? `${written(place)} ${unit().short}` : `${tickLabel(place)} tokens`}`;
    },
    judged: (name) => !["loss", "learning rate", "gradient norm", "speed", "memory"].includes(name),
    point(place) { for (const chart of charts) chart.show(place); },
  };

  function drawAll() {
    const ends = now.runs.flatMap((run) => Object.values(run.curves).map((curve) => page.placesOf(run, curve[0].slice(-1))[0]));
    reach = Math.max(1e-9, ...ends);
    page.point(null);
    for (const chart of charts) chart.setRuns(now.runs);
  }

  function showCurves() {
    curves.hidden = !now.charts.length;
    nothing.hidden = now.charts.length > 0;
    const titles = { update: "updates", tokens: "target tokens", hours: `${unit().name} of training` };
    const there = Object.keys(titles).filter((name) => name === "update" || now.runs.every((run) => run.clocks[name][0].length));
    if (!there.includes(across)) across = "update";
    replace(axis, there.map((name) => h("option", { value: name, selected: name === across }, titles[name])));
    chartPlace.classList.toggle("two", isPair());
    if (charts.map((chart) => chart.spec.name).join() !== now.charts.map((spec) => spec.name).join()) {
      for (const chart of charts) chart.observer.disconnect();
      charts = now.charts.map((spec) => new Chart(spec, page));
      replace(chartPlace, charts.map((chart) => chart.element));
    }
    drawAll();
  }

  // ---- tables

  const titled = (run, index, ...children) => h("div", {}, isPair() ? h("h3", {}, h("i", { class: `key run${index}` }), h("bdi", {}, plainText(run.label))) : null, children);

  function showLists() {
    checkSection.hidden = !now.runs.some((run) => run.checks.rows.length);
    replace(checks, now.runs.map((run, index) => titled(run, index, run.checks.rows.length ? scrolled(textTable(run.checks.names, run.checks.rows), `Validations of ${run.label}`) : h("p", {}, "None yet."))));
    replace(notes, now.runs.map((run, index) => { const { rows, earlier } = run.notes; return titled(run, index,
      rows.length ? scrolled(textTable(["update", "what", ""], rows), `Events of ${run.label}`) : h("p", { class: "hint" }, "None: no update was skipped and nothing else happened."),
      earlier ? h("p", { class: "hint" }, `and ${earlier.toLocaleString("en")} before these`) : null); }));
  }

  const differs = (row) => (isPair() && row[1] !== row[2] ? "differs" : "");

  function showGroups(parent, groups, missing, isMarked, isFiltered = false) {
    parent.classList.toggle("wide", isPair() && isMarked);
    const shown = groups.map(({ title, rows }) => ({ title, rows: isFiltered ? rows.filter(differs) : rows })).filter(({ rows }) => rows.length);
    if (!shown.length) return replace(parent, h("p", { class: "hint" }, groups.length ? "No setting differs." : missing));
    return replace(parent, shown.map(({ title, rows }) => h("div", {}, title ? h("h3", {}, plainText(title)) : null,
      textTable(isPair() ? ["", ...now.runs.map((run) => run.label)] : [], rows, isMarked ? differs : () => ""))));
  }

  function showRecipe() { showGroups(recipe, now.recipe, "The folder holds no recipe.toml.", true, only.checked); }

  function show() {
    replace(legend, isPair() ? now.runs.map((run, index) => h("li", {}, h("i", { class: `key run${index}` }), h("bdi", {}, plainText(run.label)))) : null);
    showGroups(summary, now.summary, "", false);
    differing.hidden = !isPair();
    showRecipe();
    showGroups(report, now.data, "The folder holds no report on its data.", true);
    showCurves();
    moments = [...new Set(now.runs.flatMap((run) => run.moments.map((each) => each.update)))].sort((a, b) => a - b);
    samples.show(now.runs, moments, moment);
    showLists();
  }

  show();
  return {
    state: () => ({ across, ...(moment === null ? {} : { moment }) }),
    restore(state) {
      if (["update", "tokens", "hours"].includes(state.across)) across = state.across;
      if (moments.includes(state.moment)) moment = state.moment;
      show();
    },
    update(next) { now = next; show(); },
    destroy() { for (const chart of charts) chart.observer.disconnect(); },
  };
}

// On the straight line from point to point, beginning at nothing.
function onLine(updates, values, update) {
  let low = 0, high = updates.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (updates[middle] < update) low = middle + 1; else high = middle;
  }
  if (low === updates.length) return values[low - 1];
  const [u, v] = low ? [updates[low - 1], values[low - 1]] : [0, 0];
  return updates[low] === u ? values[low] : v + ((values[low] - v) * (update - u)) / (updates[low] - u);
}

function textTable(names, rows, mark = () => "") { // the first column names its row
  const cellOf = (cell, i) => {
    const text = cell === null ? "–" : plainText(cell), isNumber = i && /^[-+\d.,e]+$/.test(text);
    return h(i ? "td" : "th", { scope: i ? null : "row", class: isNumber ? "number" : null }, h("bdi", {}, text));
  };
  return h("table", {}, names.length ? h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, plainText(name))))) : null,
    h("tbody", {}, rows.map((row) => h("tr", { class: mark(row) || null }, row.map(cellOf)))));
}

const scrolled = (table, label) => h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, table);

// ---- sample translations, validation by validation

function sampleSection(moved) {
  const name = identity("moment"), at = h("output", { for: name }), place = h("div", { class: "samples" });
  const slider = h("input", { type: "range", id: name, min: "0", step: "1", oninput: () => { draw(); moved(moments[Number(slider.value)]); } });
  const element = h("section", {}, h("h2", {}, "Sample translations"), h("p", { class: "moment" }, h("label", { for: name }, "After update ", at), slider),
    h("p", { class: "hint" }, "Words that differ from the reference are underlined."), place);
  let runs = [], moments = [];

  function draw() {
    const update = moments[Number(slider.value)];
    at.textContent = update.toLocaleString("en");
    slider.setAttribute("aria-valuetext", `update ${update.toLocaleString("en")}`);
    replace(place, samplesAt(runs, update).map(({ source, reference, answers }) => h("dl", {}, h("dt", {}, "source"), h("dd", {}, h("bdi", {}, plainText(source))),
      h("dt", {}, "reference"), h("dd", {}, h("bdi", {}, plainText(reference))), answers.map(({ index, label, at: when, translation }) => [
        h("dt", {}, runs.length > 1 ? h("i", { class: `key run${index}` }) : null, h("bdi", {}, runs.length > 1 ? plainText(label) : "translation"), when === update ? null : ` (${when.toLocaleString("en")})`),
        h("dd", {}, compared(translation, reference), translation === reference ? h("span", { class: "same" }, "✓ as the reference") : null)]))));
  }

  function show(newRuns, newMoments, moment) {
    runs = newRuns;
    moments = newMoments;
    element.hidden = !moments.length;
    if (!moments.length) return;
    slider.max = String(moments.length - 1);
    slider.value = String(moment === null ? moments.length - 1 : moments.indexOf(moment));
    slider.disabled = moments.length === 1;
    draw();
  }
  return { element, show };
}

// Of each run, the samples of its last validation until then; one card for each pair.
function samplesAt(runs, update) {
  const cards = new Map();
  runs.forEach((run, index) => {
    const moment = run.moments.filter((each) => each.update <= update).pop();
    for (const [source, reference, translation] of moment ? moment.samples : []) {
      const key = JSON.stringify([source, reference]);
      if (!cards.has(key)) cards.set(key, { source, reference, answers: [] });
      cards.get(key).answers.push({ index, label: run.label, at: moment.update, translation });
    }
  });
  return [...cards.values()];
}

// A text; words that are not in its longest common subsequence with another one are underlined.
export function compared(text, other) {
  const a = text.split(" "), b = other.split(" ");
  if (a.length * b.length > MOST_WORDS) return h("bdi", {}, plainText(text));
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  }
  const parts = [];
  for (let i = 0, j = 0; i < a.length; i++) {
    while (j < b.length && a[i] !== b[j] && lengths[i][j] === lengths[i][j + 1]) j++;
    const isCommon = j < b.length && a[i] === b[j];
    if (isCommon) j++;
    parts.push(i ? " " : "", isCommon ? plainText(a[i]) : h("u", {}, plainText(a[i])));
  }
  return h("bdi", {}, parts);
}

// The reports of two runs as one, as `transduce report A B` writes it.
export function reportOfTwo(one, two) {
  const labels = [one, two].map(({ runs: [run] }) => run.label);
  const charts = [...one.charts, ...two.charts.filter((chart) => !one.charts.some(({ name }) => name === chart.name))];
  const groups = (a, b) => [...new Set([...a, ...b].map(({ title }) => title))].map((title) => {
    const [left, right] = [a, b].map((all) => new Map((all.find((group) => group.title === title)?.rows ?? []).map(([name, value]) => [name, value])));
    return { title, rows: [...new Set([...left.keys(), ...right.keys()])].map((name) => [name, left.get(name) ?? null, right.get(name) ?? null]) };
  });
  return { charts, runs: [...one.runs, ...two.runs].map((run, index) => ({ ...run, label: labels[0] === labels[1] ? `${labels[index]} (${index + 1})` : labels[index] })),
    summary: groups(one.summary, two.summary), recipe: groups(one.recipe, two.recipe), data: groups(one.data, two.data) };
}
