// Where activations of a second sentence are put: the encoder's output, the residual after a layer, or one head.
import { h, replace } from "../lib/element.js";
import { direction } from "../lib/tokens.js";
import { chipList, chipsOf } from "./source-chips.js";
import { KIND_TITLES } from "./switchboard.js";

const numbersBetween = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

// data: { source, pieces, words, produced, kinds }; state: { other, place, layer, head, positions }; change() after every change.
// `place` is memory, residual.encoder, residual.decoder, or head.KIND; `positions` is null for everywhere.
export function patchForm(data, state, change, enabled) {
  const other = h("textarea", { rows: "2", class: "other", dir: "auto", spellcheck: "false", disabled: !enabled, oninput: () => { state.other = other.value.replace(/\n/g, " "); draw(); change(); } });
  const place = h("select", { disabled: !enabled, onchange: () => { Object.assign(state, { place: place.value, layer: 1, head: 1, positions: null }); draw(); change(); } },
    placesOf(data.kinds).map(([value, title]) => h("option", { value }, title)));
  const numbered = (name) => h("select", { disabled: !enabled, onchange: (event) => { state[name] = Number(event.target.value); draw(); change(); } });
  const layer = numbered("layer"), head = numbered("head");
  const layerLabel = h("label", {}, "layer ", layer), headLabel = h("label", {}, "head ", head);
  const everywhere = h("button", { type: "button", class: "unit", disabled: !enabled, onclick: () => { state.positions = null; draw(); change(); } }, "everywhere");
  const list = chipList("Positions", (chip) => {
    const before = state.positions ?? [];
    state.positions = before.includes(chip.key) ? before.filter((key) => key !== chip.key) : [...before, chip.key].sort((a, b) => a - b);
    if (!state.positions.length) state.positions = null;
    draw();
    change();
  }, enabled);
  const about = h("p", { class: "hint" }), positionsTitle = h("h3", {});
  const copy = h("button", { type: "button", class: "quiet", onclick: () => { state.other = data.source; draw(); other.focus(); change(); } }, "Begin with the same sentence");
  const element = h("section", { class: "patch-form", "aria-label": "Patch" }, h("h2", {}, "Patch from a second sentence"),
    h("p", { class: "hint" }, "Some activations are taken from what the model computes for another sentence. Change one word, patch a place, and see whether that place carries the difference."),
    h("label", { class: "stacked" }, "Second sentence", other), enabled ? copy : null,
    h("div", { class: "controls tight" }, h("label", {}, "Where ", place), layerLabel, headLabel),
    positionsTitle, h("div", { class: "positions" }, everywhere, list.element), about);

  const ofSource = () => state.place === "memory" || state.place.endsWith("encoder");
  // A patch in the decoder is at steps; each step produces the token that stands on its chip.
  const chips = () => (ofSource() ? chipsOf(data.pieces, data.words, false, data.source) : chipsOf(data.produced, null, true));

  function fillNumbers() {
    const [type, name] = state.place.split("."), sizes = data.kinds[name] ?? { layers: 0, heads: 0 };
    layerLabel.hidden = type === "memory";
    headLabel.hidden = type !== "head";
    for (const [select, most, key] of [[layer, sizes.layers, "layer"], [head, sizes.heads, "head"]]) {
      replace(select, numbersBetween(1, most).map((value) => h("option", { value: String(value), selected: value === state[key] }, String(value))));
    }
  }

  function draw() {
    if (document.activeElement !== other) other.value = state.other;
    place.value = state.place;
    fillNumbers();
    positionsTitle.textContent = ofSource() ? "At which words (the same words of both sentences)" : "At which steps (the token that is produced there)";
    everywhere.setAttribute("aria-pressed", state.positions === null);
    list.show(chips(), (chip) => ({ pressed: state.positions?.includes(chip.key) ?? false, name: chip.text }), direction(ofSource() ? data.source : data.produced.join("")));
    about.textContent = state.place === "memory" && state.positions === null
      ? "The whole encoder output of the second sentence: the model then translates that sentence." : "";
    copy.hidden = !enabled || state.other === data.source;
  }

  // The request, or null if nothing would be patched.
  function request() {
    if (!state.other.trim() || state.other === data.source) return null;
    const [type, name] = state.place.split(".");
    const body = { other: state.other, where: type === "memory" ? "memory" : type === "residual" ? [name, state.layer] : [name, state.layer, state.head] };
    if (state.positions === null) return body;
    if (!ofSource()) return { ...body, steps: state.positions };
    const chosen = chips().filter((chip) => state.positions.includes(chip.key));
    if (chosen.every((chip) => chip.word !== null)) return { ...body, words: chosen.map((chip) => chip.word) };
    return { ...body, tokens: chosen.flatMap((chip) => numbersBetween(chip.from, chip.to - 1)) };
  }

  // What is patched, in words.
  function describe() {
    const place = [...placesOf(data.kinds)].find(([value]) => value === state.place)[1], [type] = state.place.split(".");
    const where = type === "memory" ? "encoder output" : `${place} ${type === "head" ? `layer ${state.layer} head ${state.head}` : state.layer}`;
    const at = chips().filter((chip) => state.positions?.includes(chip.key)).map((chip) => chip.text);
    return `${where}${at.length ? ` at “${at.join("”, “")}”` : ", everywhere,"} from the second sentence`;
  }

  draw();
  return { element, draw, request, describe };
}

function placesOf(kinds) {
  const found = [["memory", "encoder output (memory)"]];
  for (const stack of ["encoder", "decoder"]) if (kinds[stack]) found.push([`residual.${stack}`, `residual stream after ${stack} layer`]);
  for (const kind of ["encoder", "decoder", "cross"]) if (kinds[kind]) found.push([`head.${kind}`, `one head of ${KIND_TITLES[kind].toLowerCase()}`]);
  return found;
}
