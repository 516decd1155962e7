// The source as chips: click one to mask it, or to write something else in its place.
import { h, replace } from "../lib/element.js";
import { roving } from "../lib/keys.js";
import { direction, tokenList, tokenText, wordList } from "../lib/tokens.js";

// Chips of words, as they are written in `source`, or of pieces: { text, from, to, special, word, starts, key }
export function chipsOf(pieces, words, byPieces, source = null) {
  const tokens = tokenList(pieces, words);
  const found = byPieces ? tokens.map((token) => ({ ...token, from: token.index, to: token.index + 1 })) : wordList(tokens, source);
  return found.map((chip) => ({ ...chip, key: chip.from }));
}

// A text with some of its chips replaced; what stands between them stays.
export function editedText(source, chips, edits) {
  const parts = [];
  let at = 0;
  for (const chip of chips.filter((one) => !one.special)) {
    const found = source.indexOf(chip.text, at);
    if (found < 0) continue; // a character that the tokenizer rewrites; the text around it stays as it is
    parts.push(source.slice(at, found), edits[chip.key] ?? chip.text);
    at = found + chip.text.length;
  }
  return parts.join("") + source.slice(at);
}

// Buttons that can be chosen, such as the positions of a patch. onPress(chip)
export function chipList(label, onPress, enabled = true) {
  const element = h("div", { class: "units", role: "group", "aria-label": label });
  let buttons = [];
  const keys = roving(element, () => buttons);
  return {
    element,
    // describe(chip) -> { pressed, name, content? }
    show(chips, describe, dir) {
      const focused = buttons.indexOf(document.activeElement);
      buttons = chips.map((chip) => {
        const { pressed, name, content = null, kind = "" } = describe(chip);
        return h("button", { type: "button", class: `unit ${kind} ${chip.starts || chip.special ? "" : "joined"}`, "aria-pressed": pressed, "aria-label": name, title: name,
          disabled: !enabled, onclick: () => onPress(chip) }, content ?? tokenText(chip));
      });
      element.dir = dir;
      replace(element, buttons);
      keys.renew();
      if (focused >= 0) keys.focus(focused);
    },
    // Write in place of a chip; onDone(text or null)
    edit(index, value, onDone) {
      const before = buttons[index], input = h("input", { type: "text", class: "unit-input", value, "aria-label": "Write instead", spellcheck: "false", dir: "auto" });
      let open = true;
      const done = (text) => { if (open) { open = false; onDone(text); keys.focus(index); } };
      input.style.setProperty("inline-size", `${Math.max(4, value.length + 2)}ch`);
      input.addEventListener("input", () => input.style.setProperty("inline-size", `${Math.max(4, input.value.length + 2)}ch`));
      input.addEventListener("keydown", (event) => {
        event.stopPropagation(); // arrows move the caret here, not the focus
        if (event.key === "Enter") done(input.value);
        if (event.key === "Escape") done(null);
      });
      input.addEventListener("blur", () => done(input.value));
      before.replaceWith(input);
      input.focus();
      input.select();
    },
  };
}

// The source of an intervention. data: { source, pieces, words }; change() is called when the user changed something.
// The state is { masked: [positions], edits: { position: text }, pieces: whether chips are pieces }.
export function sourcePart(data, state, change, enabled) {
  let writes = false;
  const chips = () => chipsOf(data.pieces, data.words, state.pieces, data.source);
  const list = chipList("Source", press, enabled);
  const choice = (label, options, current, act) => h("div", { class: "segmented", role: "group", "aria-label": label }, Object.entries(options).map(([name, title]) =>
    h("button", { type: "button", "aria-pressed": name === current, onclick: () => act(name) }, title)));
  const tools = h("div", { class: "controls tight" });
  const element = h("section", { class: "source-part", "aria-label": "Source" }, h("h2", {}, "Source"), tools, list.element);

  function press(chip) {
    if (writes && !chip.special) {
      list.edit(chips().findIndex((one) => one.key === chip.key), state.edits[chip.key] ?? chip.text, (text) => {
        if (text !== null) setEdit(chip, text.trim());
        draw();
      });
      return;
    }
    if (Object.keys(state.edits).length) state.edits = {}; // one thing is changed at a time: the words, or what may be attended to
    const own = range(chip), all = own.every((position) => state.masked.includes(position));
    state.masked = all ? state.masked.filter((position) => !own.includes(position)) : [...new Set([...state.masked, ...own])].sort((a, b) => a - b);
    draw();
    change();
  }

  function setEdit(chip, text) {
    const { [chip.key]: former, ...others } = state.edits;
    if (text === (former ?? chip.text)) return;
    state.masked = [];
    state.edits = text === chip.text ? others : { ...others, [chip.key]: text };
    change();
  }

  const range = (chip) => Array.from({ length: chip.to - chip.from }, (_, i) => chip.from + i);

  function describe(chip) {
    const edit = state.edits[chip.key], masked = range(chip).every((position) => state.masked.includes(position));
    if (edit !== undefined) {
      return { pressed: true, kind: "edited", name: `${chip.text} was replaced by ${edit || "nothing"}`, content: [h("del", {}, chip.text), h("bdi", { dir: "auto" }, edit || "∅")] };
    }
    return { pressed: masked, kind: masked ? "masked" : "", name: `${chip.text}${masked ? ": masked" : ""}` };
  }

  function draw() {
    if (enabled) {
      replace(tools,
        h("label", {}, "A click", choice("What a click does", { mask: "masks", edit: "edits" }, writes ? "edit" : "mask", (name) => { writes = name === "edit"; draw(); })),
        data.pieces.length > 2 ? choice("Units", { words: "Words", pieces: "Pieces" }, state.pieces ? "pieces" : "words", (name) => {
          state.pieces = name === "pieces";
          if (Object.keys(state.edits).length) { state.edits = {}; change(); }
          draw();
        }) : null);
    }
    list.show(chips(), describe, direction(data.source));
  }

  draw();
  return { element, draw, text: () => editedText(data.source, chips(), state.edits) };
}
