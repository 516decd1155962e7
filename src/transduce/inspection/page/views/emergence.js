// One sentence through the checkpoints of a run: how its translation and an attention map emerge. Two stages compare.
import { h, replace, identity } from "../lib/element.js";
import { decodeArray } from "../lib/arrays.js";
import { onTheme, paintDots, unsure, inkOn } from "../lib/draw.js";
import { fixed, percent } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { tokenList, tokenName } from "../lib/tokens.js";
import { heatMap } from "./heat-map.js";
import { compared } from "./run.js";

const KIND_NAMES = { encoder: "encoder", decoder: "decoder", cross: "cross-attention", causal: "self-attention" };
const PLAY = 900; // milliseconds per checkpoint

// data: { text, stages: [{ name, kinds, frames: [{ label, pass?, layers: { "encoder.1": ARRAY } }] }] }
// live: { frame(stage, frame) -> Promise of a pass, layer(pass, kind, layer) -> Promise of ARRAY, changed(), failed(error) }
export function emergenceView(root, data, live = null) {
  const stages = data.stages.map((stage) => emergenceStage(stage, live));
  replace(root, h("div", { class: `view emergence${stages.length > 1 ? " two" : ""}` }, stages.map(({ element }) => element)));
  const stop = onTheme(() => { for (const stage of stages) stage.redraw(); });
  return {
    stages: data.stages,
    state: () => ({ stages: stages.map((stage) => stage.state()) }),
    restore(state) { stages.forEach((stage, i) => stage.restore(state.stages?.[i] ?? {})); },
    destroy() { stop(); for (const stage of stages) stage.destroy(); },
  };
}

function emergenceStage(stage, live) {
  const { frames } = stage, places = mapPlaces(stage.kinds), link = { row: null, column: null, set: point, pin() {} };
  let at = frames.length - 1, place = places.find(({ kind }) => kind === "cross") ?? places[0], timer = null, turn = 0, shown = null;
  const name = identity("checkpoint"), when = h("output", { for: name });
  const slider = h("input", { type: "range", id: name, "aria-label": `Checkpoint of ${stage.name}`, min: "0", max: String(frames.length - 1), step: "1", value: String(at), disabled: frames.length < 2, oninput: () => { pause(); go(Number(slider.value)); } });
  const play = h("button", { type: "button", disabled: frames.length < 2, onclick: () => (timer ? pause() : start()) }, "▶ Play");
  const chooser = h("select", { "aria-label": `Attention map of ${stage.name}`, onchange: () => { place = places[Number(chooser.value)]; live?.changed(); go(at); strip(); } },
    places.map((one, i) => h("option", { value: String(i), selected: one === place }, one.title)));
  const output = h("p", { class: "emergence-output", "aria-live": "polite" }), note = h("p", { class: "hint" }), readout = h("p", { class: "readout" });
  const thumbs = frames.map((frame, i) => h("button", { type: "button", class: "thumb", "aria-label": `checkpoint ${frame.label}`, onclick: () => { pause(); go(i); } }, h("canvas", {}), h("span", {}, frame.label)));
  const film = h("div", { class: "film", role: "group", "aria-label": "Checkpoints" }, thumbs);
  const map = places.length ? heatMap(link, { label: `Attention map of ${stage.name}` }) : null;
  const table = behind(() => dataTable({ caption: "What each checkpoint writes", columns: ["checkpoint", "output", "log-probability"],
    rows: frames.filter((frame) => frame.pass).map((frame) => [frame.label, h("bdi", {}, frame.pass.output), frame.pass.log_probability === undefined ? "" : fixed(frame.pass.log_probability, 3)]) }), "Outputs as a table");
  const element = h("section", { class: "stage" }, h("h3", {}, h("bdi", {}, stage.name)),
    h("div", { class: "moment" }, play, h("label", { for: name }, when), slider), output, note,
    frames.length > 1 ? film : null,
    map ? [h("div", { class: "controls" }, h("label", {}, "Map ", chooser), readout), map.element] : null, table.element);

  // A frame with its pass and the layer of the chosen map.
  async function load(index, where) {
    const frame = frames[index], key = where ? `${where.kind}.${where.layer}` : "";
    if (!frame.pass && live) frame.pass = await (frame.asked ??= live.frame(stage, frame));
    frame.layers ??= {};
    if (where && frame.pass && !frame.layers[key] && live) frame.layers[key] = await live.layer(frame.pass, where.kind, where.layer);
    return { frame, array: frame.layers[key] ? await decodeArray(frame.layers[key]) : null };
  }

  async function go(index) {
    const mine = ++turn;
    at = index;
    slider.value = String(at);
    when.textContent = frames[at].title ?? `update ${frames[at].label}`;
    slider.setAttribute("aria-valuetext", when.textContent);
    thumbs.forEach((thumb, i) => thumb.setAttribute("aria-pressed", i === at));
    film.scrollTo({ left: thumbs[at].offsetLeft - film.clientWidth / 2 });
    live?.changed();
    try {
      const [{ frame, array }, { frame: last }] = await Promise.all([load(at, place), load(frames.length - 1, null)]);
      if (mine !== turn || !frame.pass) return;
      showOutput(frame.pass, last.pass ?? frame.pass);
      if (map && array) showMap(frame.pass, array);
      table.renew();
    } catch (error) { if (live) live.failed(error); }
  }

  function showOutput(pass, last) {
    const isLast = pass === last || pass.output === last.output, tokens = tokenList(pass.produced_pieces ?? [], pass.produced_words ?? null);
    replace(output, tokens.length && pass.subject === "translation" ? tokens.filter((token) => !token.special).map((token) => {
      const colour = unsure(pass.steps[token.index]?.probability ?? 1);
      return [token.starts ? " " : "", h("bdi", { class: "shaded", style: { background: colour, color: inkOn(colour) }, title: percent(pass.steps[token.index]?.probability ?? 1) }, token.text)];
    }) : h("bdi", { dir: "auto" }, pass.output || "(nothing)"));
    replace(note, pass.ended === false && pass.subject === "translation" ? "It does not find the end. " : "", isLast ? "As the last model writes it. " : ["Differs from the last model: ", compared(pass.output, last.output), ". "],
      pass.subject === "translation" ? "The stronger the colour, the less sure." : "");
  }

  function showMap(pass, array) {
    const { rows, columns } = pass.attention[place.kind], size = rows.length * columns.length, [heads] = array.shape;
    let values = array.data.subarray((place.head - 1) * size, place.head * size);
    if (!place.head) values = Float32Array.from({ length: size }, (_, i) => { let sum = 0; for (let k = 0; k < heads; k++) sum += array.data[k * size + i]; return sum / heads; });
    shown = { values, names: [tokenList(rows), tokenList(columns)] };
    map.show(values, shown.names, 1);
  }

  function point(row, column) {
    Object.assign(link, { row, column });
    map.draw();
    if (row === null || !shown) return replace(readout, "");
    const [rows, columns] = shown.names;
    return replace(readout, h("bdi", {}, tokenName(rows[row])), " → ", h("bdi", {}, tokenName(columns[column])), ` ${percent(shown.values[row * columns.length + column])}`);
  }

  // Thumbnails, one after the other, so that the frame that is looked at is never kept waiting for long.
  async function strip() {
    if (frames.length < 2) return;
    const mine = place;
    for (let i = frames.length - 1; i >= 0; i--) {
      try {
        const { frame, array } = await load(i, place);
        if (mine !== place || !element.isConnected) return;
        if (array) paintThumb(thumbs[i].firstChild, frame.pass.attention[place.kind], array);
      } catch { return; }
    }
    table.renew();
  }

  function paintThumb(canvas, { rows, columns }, { shape: [heads], data: all }) {
    const size = rows.length * columns.length;
    paintDots(canvas, Float32Array.from({ length: size }, (_, i) => {
      if (place.head) return Math.sqrt(all[(place.head - 1) * size + i]);
      let sum = 0;
      for (let k = 0; k < heads; k++) sum += all[k * size + i];
      return Math.sqrt(sum / heads);
    }), rows.length, columns.length, 1);
  }

  function start() {
    if (at === frames.length - 1) go(0);
    timer = setInterval(() => { if (at < frames.length - 1) go(at + 1); else pause(); }, PLAY);
    play.textContent = "❚❚ Pause";
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  }

  go(at);
  strip();
  return {
    element,
    redraw: () => { go(at); strip(); },
    state: () => ({ at, map: place ? [place.kind, place.layer, place.head] : null }),
    restore(state) {
      if (Array.isArray(state.map)) place = places.find(({ kind, layer, head }) => [kind, layer, head].join() === state.map.join()) ?? place;
      chooser.value = String(places.indexOf(place));
      go(Number.isInteger(state.at) && frames[state.at] ? state.at : at);
      strip();
    },
    destroy() { pause(); map?.destroy(); },
  };
}

// Every map of a model that can be followed: each layer's mean, then each head.
function mapPlaces(kinds) {
  return Object.entries(kinds ?? {}).flatMap(([kind, { layers, heads }]) => Array.from({ length: layers }, (_, i) => i + 1).flatMap((layer) =>
    Array.from({ length: heads + 1 }, (_, head) => ({ kind, layer, head, title: `${KIND_NAMES[kind]}, layer ${layer}, ${head ? `head ${head}` : "mean of heads"}` }))));
}
