// Type, and the translation appears; change a token, and the model continues from there.
import { plainArray } from "../lib/arrays.js";
import { h, replace, debounced } from "../lib/element.js";
import { counted } from "../lib/numbers.js";
import { shortened } from "../lib/tokens.js";
import { translationView } from "../views/translation.js";
import { meanCross } from "./cross.js";
import { optionsBar } from "./options.js";

const JUMPS = [["beam-tree", "Beam tree"], ["attention", "Attention"], ["intervene", "Intervene"], ["inside", "Inside"]];
const VIEW_NEEDED = { "beam-tree": "beam-tree", attention: "attention", intervene: "intervention", inside: "lens" };

export function translatePanel(root, app) {
  const { session } = app, options = optionsBar(app);
  const write = debounced(() => session.setText(input.value), 220);
  const input = h("textarea", { class: "source-text", "aria-label": "Text", spellcheck: "false", dir: "auto", rows: "3", placeholder: "Type a text …", oninput: write });
  const languages = h("div", { class: "controls languages" }), examples = h("p", { class: "examples" }), remaining = h("span"), result = h("div", { class: "result", "aria-label": "Translation", role: "region" });
  // Drawn once, above what grows: a button that is drawn again or moves with every token loses focus and clicks.
  const progress = h("p", { class: "hint progress", hidden: true }, remaining, h("button", { type: "button", class: "quiet", onclick: () => session.wantAll() }, "Translate all"));
  const copy = h("button", { type: "button", class: "quiet copy", hidden: true, onclick: () => copyTranslation(app) });
  replace(root, h("div", { class: "translate" }, h("div", { class: "write" }, languages, input, examples, options.element), h("div", { class: "translated" }, copy, progress, result)));

  const live = {
    choose: async (segment, tokens) => {
      try {
        const pass = await session.force(segment, tokens);
        app.announce(`Now: ${pass.output}`);
      } catch (error) { app.failed(error); }
    },
    undo: (segment) => session.undo(segment),
    seen: (line) => session.want(line),
    raw: (pass) => meanCross(app.api, pass),
    open: (tab, line, segment) => {
      session.select(session.lines.indexOf(line), line.segments.indexOf(segment));
      app.go(tab);
    },
    get tabs() { return JUMPS.filter(([tab]) => (session.model.views ?? []).includes(VIEW_NEEDED[tab])); },
  };
  let view = null;

  function drawProgress() {
    const left = session.pending;
    progress.hidden = !left;
    copy.hidden = session.model.task === "text_encoding" || !session.lines.some((line) => line.segments.some(({ pass }) => pass));
    copy.textContent = session.isTranslator ? "Copy translation" : "Copy continuation";
    replace(remaining, left ? `${counted(left, "line")} not translated yet; lines are translated when you scroll to them. ` : null);
  }

  function drawAll() {
    options.element.hidden = session.model.task === "text_encoding"; // it searches nothing
    if (document.activeElement !== input) input.value = session.text;
    const data = { lines: session.lines, at: session.at };
    view?.destroy();
    view = translationView(result, data, live);
    drawProgress();
  }

  function drawExamples() {
    const given = (session.model.examples ?? []).slice(0, 3);
    replace(examples, given.length ? h("span", { class: "hint" }, "Try: ") : null, given.map((text) => h("button", { type: "button", class: "quiet", title: text, onclick: () => {
      input.value = text;
      session.setText(text);
    } }, h("bdi", {}, shortened(text, 90)))));
    input.placeholder = { language_modeling: "Type a prompt …", text_encoding: "Type a text …" }[session.model.task] ?? "Type a text to translate …";
  }

  function drawLanguages() { // only of a model that has a choice
    const { model, options: given } = session;
    const select = (name, title, choices, first) => (choices?.length > 1 ? h("label", {}, title, h("select", { "aria-label": title,
      onchange: (event) => session.setOptions({ ...session.options, [name]: event.target.value || undefined }) },
    choices.map((one) => h("option", { value: one, selected: one === (given[name] ?? first) }, one)))) : null);
    replace(languages, select("source_language", "From", model.source_languages, model.default_source), select("target_language", "To", model.target_languages, model.default_target));
    languages.hidden = !languages.children.length;
  }

  session.addEventListener("options", drawLanguages);
  session.addEventListener("model", drawLanguages);
  session.addEventListener("text", drawAll);
  session.addEventListener("model", drawExamples);
  session.addEventListener("segment", (event) => { view?.changed(event.detail); drawProgress(); });
  drawExamples();
  drawLanguages();
  options.draw();
  drawAll();
  return { saved: () => savedTranslation(app) };
}

// The translation as plain text, line by line; what is not translated yet is left empty, marks of subtitles stay.
export function translationText(lines) {
  return lines.map((line) => (line.isMark ? line.text : line.segments.map(({ pass, after }) => (pass?.output ?? "") + (after ?? "")).join(""))).join("\n");
}

async function copyTranslation(app) {
  try {
    await navigator.clipboard.writeText(translationText(app.session.lines));
    app.toast("Copied");
  } catch { app.toast("The browser does not let this page copy; save the view instead"); }
}

// What a saved page holds: the sentences that are recorded, each with its mean cross-attention.
async function savedTranslation({ api, session }) {
  const lines = [];
  for (const line of session.lines) {
    const segments = [];
    for (const { text, after, pass } of line.segments) if (pass) {
      const cross = pass.attention.cross ? await meanCross(api, pass) : null;
      segments.push({ text, after, partial: "", pass, cross: cross && plainArray(cross) });
    }
    if (segments.length || line.isMark) lines.push({ text: line.text, isMark: line.isMark, state: "done", error: null, segments });
  }
  const first = lines.find((line) => line.segments.length);
  if (!first) return null;
  return { title: first.segments[0].pass.output.slice(0, 80), view: "translation", data: { lines, at: { line: 0, segment: 0 } }, state: null };
}
