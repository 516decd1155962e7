// A translation, sentence by sentence: every token shaded by its probability, its alternatives, its source words.
//
// data: { lines: [{ text, isMark, state, error, segments: [{ text, after, partial, pass, undo, cross? }] }], at: { line, segment } }
//   pass: a recorded pass; cross: its mean cross-attention (rows × columns), in saved pages
// live: choose(segment, tokens), undo(segment), select(line, segment), seen(line), raw(pass) -> Promise of an array, open(tab)
import { h, replace, whenSeen } from "../lib/element.js";
import { decodeArray } from "../lib/arrays.js";
import { paintDots, colours, unsure, inkOn, onTheme, sequential } from "../lib/draw.js";
import { percent, fixed, counted } from "../lib/numbers.js";
import { direction, tokenList, shortened, tokenText, wordList, tokenName } from "../lib/tokens.js";
import { roving } from "../lib/keys.js";
import { behind, dataTable } from "../lib/table.js";
import { writtenTokens, forcedTokens, keptTokens, linkedWords } from "./written.js";
import { tokenCard } from "./alternatives.js";

const MOST_FAILED = 300; // characters that are shown of a text that was rejected

export function translationView(root, data, live = null) {
  const card = tokenCard(), list = h("div", { class: "sentences" }), legend = probabilityLegend();
  const places = new Map(); // segment -> its element
  const table = behind(() => stepsTable(data));
  const observer = live ? whenSeen((place) => live.seen(data.lines[place.dataset.line]), "100px") : null;
  const rows = new WeakMap(); // pass -> Promise of its mean cross-attention
  const hint = h("p", { class: "hint" }, live ? "Point at a token to see where it comes from and what else was likely; click it to choose another: the model rewrites the rest." : "Point at a token to see where it comes from and what else was likely.");
  const isReader = () => data.lines.some((line) => line.segments.some(({ pass }) => pass?.subject === "text")); // a text encoder writes nothing
  const about = h("div", { class: "about" }, legend.element, hint);
  replace(root, h("div", { class: "view translation" }, about, list, card.element, table.element));

  function raw(segment, position) {
    const { pass } = segment;
    if (!rows.has(pass)) rows.set(pass, segment.cross ? decodeArray(segment.cross) : live ? live.raw(pass) : Promise.reject(new Error("not saved")));
    return rows.get(pass).then(({ shape, data: values }) => Array.from(values.subarray(position * shape[1], (position + 1) * shape[1])));
  }

  function drawSegment(segment, line) {
    const place = h("article", { class: "sentence", dir: "auto" });
    if (segment.pass) replace(place, sentence(segment, { card, raw, live, line, segment }));
    else replace(place, h("p", { class: "source" }, segment.text), h("p", { class: "target partial", dir: direction(segment.partial) }, segment.partial, h("span", { class: "caret", "aria-hidden": "true" })));
    place.classList.toggle("current", Boolean(live) && several() && segment === data.lines[data.at.line]?.segments[data.at.segment]);
    return place;
  }

  const several = () => data.lines.reduce((count, line) => count + Math.max(1, line.segments.length), 0) > 1;

  function drawLine(line, index) {
    const made = h("div", { class: "line", "data-line": String(index) });
    fillLine(made, line);
    if (observer && line.state === "new") observer.observe(made);
    return made;
  }

  function fillLine(made, line) {
    if (line.error) replace(made, h("p", { class: "source" }, shortened(line.text, MOST_FAILED)), h("p", { class: "failed" }, line.error));
    else if (line.isMark) replace(made, h("p", { class: "hint mark", dir: "ltr" }, line.text));
    else if (!line.segments.length) replace(made, h("p", { class: "source waiting" }, line.text));
    else replace(made, line.segments.map((segment) => {
      const place = drawSegment(segment, line);
      places.set(segment, place);
      return place;
    }));
  }

  function draw() {
    card.close();
    places.clear();
    const isEmpty = !data.lines.some((line) => line.text.trim());
    about.hidden = table.element.hidden = isEmpty || isReader();
    replace(list, isEmpty ? h("p", { class: "empty" }, "The result appears here while you type.") : data.lines.map(drawLine));
    table.renew();
  }

  // One line or one segment changed; only that is drawn again.
  function changed({ line, segment }) {
    if (isReader()) about.hidden = table.element.hidden = true;
    if (segment && places.has(segment)) {
      const owner = line ?? data.lines.find((one) => one.segments.includes(segment));
      const before = places.get(segment), place = drawSegment(segment, owner);
      if (card.owner && before.contains(card.owner)) card.close();
      before.replaceWith(place);
      places.set(segment, place);
    } else if (line) {
      const made = list.children[data.lines.indexOf(line)];
      if (made) fillLine(made, line);
    }
    table.renew();
  }

  const stop = onTheme(() => { legend.paint(); draw(); });
  draw();
  legend.paint();
  return { draw, changed, state: () => ({}), restore: () => {}, destroy: () => { stop(); card.destroy(); observer?.disconnect(); root.replaceChildren(); } };
}

// ---- one sentence

function sentence(owner, { card, raw, live, line, segment }) {
  const { pass } = owner, words = wordList(tokenList(pass.source_pieces ?? [], pass.source_words), pass.source), written = writtenTokens(pass);
  const source = sourceLine(pass, words), target = h("p", { class: "target", dir: direction(pass.output), role: "group", "aria-label": "Tokens of the translation" });
  const light = (token) => lightSource(source, pass, words, token, raw(segment, token?.position ?? 0));
  const buttons = written.map((token) => tokenButton(token, {
    enter: (button) => { light(token); if (!card.element.hidden && card.owner !== button) card.open(button, about(token)); },
    leave: () => { light(null); card.closeSoon(); },
    open: (button) => card.open(button, about(token)),
  }, card));
  const about = (token) => ({ token, pass, words, raw: (position) => raw(segment, position),
    act: live && ((option) => live.choose(segment, forcedTokens(pass, token, option.token))) });
  replace(target, unbroken(written).map((group) => [written[group[0]].starts && group[0] && !written[group[0]].special ? " " : null,
    h("span", { class: group.length > 1 ? "unbroken" : null }, group.map((index) => [buttons[index], written[index].text.includes("↵") ? h("br", {}) : null]))]));
  if (!written.length && pass.output) replace(target, h("bdi", { dir: "auto" }, pass.output)); // a text encoder writes nothing: its prediction
  roving(target, () => buttons);
  return [pass.subject === "prompt" ? null : source, target, live ? footLine(segment, line, live) : null];
}

// Tokens of one word stay on one line; a long chain, as in a script without spaces, may break anywhere. Each group: indices.
function unbroken(tokens) {
  const words = [];
  tokens.forEach((token, index) => {
    const last = words.at(-1);
    if (last && !token.starts && !token.special && last.length < 5) last.push(index);
    else words.push([index]);
  });
  return words;
}

function sourceLine(pass, words) {
  return h("p", { class: "source", dir: direction(pass.source) }, words.filter((word) => word.special !== "end" && word.text !== "␣").map((word, index) => [
    index && word.starts ? " " : null, h("span", { class: "word", "data-word": String(word.word), "data-from": String(word.from), "data-to": String(word.to) }, tokenText(word))]));
}

// Mark the aligned words of a token, and shade all words by the raw attention of its row.
function lightSource(source, pass, words, token, row) {
  const linked = token ? new Set(linkedWords(pass, token)) : new Set();
  source.dataset.at = token ? String(token.position) : "";
  for (const place of source.children) {
    place.classList.toggle("linked", linked.has(Number(place.dataset.word)) && place.dataset.word !== "null");
    if (!token) for (const name of ["background", "color"]) place.style.removeProperty(name);
  }
  row.then((weights) => {
    if (!token || source.dataset.at !== String(token.position)) return;
    for (const place of source.children) {
      const own = weights.slice(Number(place.dataset.from), Number(place.dataset.to)).reduce((sum, weight) => sum + weight, 0);
      const shade = sequential(Math.min(1, own) * 0.75);
      place.style.setProperty("background", shade);
      place.style.setProperty("color", inkOn(shade));
    }
  }, () => {});
}

function tokenButton(token, { enter, leave, open }, card) {
  const probability = token.step?.probability ?? 1, shade = unsure(probability);
  const button = h("button", { type: "button", class: `token${token.starts ? "" : " joined"}${token.kept ? " kept" : ""}${token.given ? " given" : ""}`, "aria-haspopup": "dialog",
    "aria-label": token.step ? `${token.text}, ${percent(probability)}` : token.text }, tokenText(token));
  if (!token.step) { button.disabled = true; return button; }
  button.style.setProperty("background", shade);
  button.style.setProperty("color", inkOn(shade));
  let timer = null;
  button.addEventListener("pointerenter", (event) => {
    enter(button);
    if (event.pointerType === "mouse") timer = setTimeout(() => open(button), 140);
  });
  button.addEventListener("pointerleave", () => { clearTimeout(timer); leave(); });
  button.addEventListener("focus", () => enter(button));
  button.addEventListener("blur", () => leave());
  button.addEventListener("click", (event) => {
    open(button);
    card.pin();
    if (event.detail === 0) card.enter(); // by keyboard
  });
  button.addEventListener("keydown", (event) => {
    if (event.key === "Escape") card.close();
    if (event.key === "ArrowDown" && card.owner === button) { event.preventDefault(); event.stopPropagation(); card.pin(); card.enter(); }
  });
  return button;
}

function footLine(segment, line, live) {
  const { pass } = segment, kept = keptTokens(pass);
  const jump = (tab, title) => h("button", { type: "button", class: "quiet", onclick: () => live.open(tab, line, segment) }, title);
  return h("p", { class: "foot" },
    h("span", {}, typeof pass.score === "number" ? `score ${fixed(pass.score, 3)} · ${counted(pass.produced_pieces.length, "token")}` : counted(pass.source_pieces.length, "token"),
      pass.ended === false ? " · cut off at the maximum length" : "", kept ? ` · ${counted(kept, "token")} kept` : ""),
    segment.undo?.length ? h("button", { type: "button", class: "quiet", onclick: () => live.undo(segment) }, "Undo") : null,
    live.tabs.map(([tab, title]) => jump(tab, title)));
}

// ---- legend and table

function probabilityLegend() {
  const canvas = h("canvas", { "aria-hidden": "true" });
  return {
    element: h("p", { class: "legend" }, h("span", {}, "Probability of each token: 0\u202f%"), canvas, h("span", {}, "100\u202f%")),
    paint: () => paintDots(canvas, Float32Array.from({ length: 256 }, (_, i) => 255 - i), 1, 256, 255, colours().unsure),
  };
}

function stepsTable(data) {
  const rows = [];
  for (const line of data.lines) for (const { pass } of line.segments) if (pass) for (const token of writtenTokens(pass)) if (token.step) {
    rows.push([h("bdi", {}, tokenName(token)), percent(token.step.probability), String(token.step.rank),
      h("bdi", {}, token.step.top.slice(0, 4).map((one) => `${one.piece.replace(/^\u2581/, "")} ${percent(one.probability)}`).join(", "))]);
  }
  return dataTable({ caption: "Each token, its probability and its rank", columns: ["token", "probability", "rank", "likeliest"], rows });
}
