// A guided tour of the paper on the user's own sentence and model. Each step loads what its lesson shows.
import { h, replace, debounced } from "../lib/element.js";
import { isArray, plainArray } from "../lib/arrays.js";
import { direction, tokenList } from "../lib/tokens.js";
import { lessonView } from "../views/lesson.js";
import { SEEDS, seedsFor } from "./seeds.js";

const EVERY_TASK = ["translation", "language_modeling", "text_encoding"], WRITERS = EVERY_TASK.slice(0, 2), TRANSLATORS = EVERY_TASK.slice(0, 1);

// A lesson: its title, the tasks it is for, the view a model must have, what it needs besides the pass.
const TOUR = {
  tokens: { title: "A sentence becomes tokens", tasks: EVERY_TASK, load: async (lesson) => ({ tokens: lesson.pass.source_tokens?.length ? lesson.pass.source_tokens : lesson.has("embeddings") ? (await lesson.embeddings()).source.tokens : null }) },
  embeddings: { title: "A token becomes a list of numbers", tasks: WRITERS, needs: "embeddings", load: async (lesson) => ({ embeddings: await lesson.embeddings() }) },
  positions: { title: "Every position has a pattern", tasks: WRITERS, needs: "embeddings", load: async (lesson) => ({ embeddings: await lesson.embeddings() }) },
  ask: { title: "Attention: query, key, value", tasks: EVERY_TASK, needs: "attention", load: async (lesson) => ({ layers: await lesson.layers(), kind: lesson.kind }) },
  arithmetic: { title: "The same, with real numbers", tasks: WRITERS, needs: "neuron", load: async (lesson) => ({ neuron: await lesson.neuron(), kind: lesson.kind }) },
  heads: { title: "Many heads at once", tasks: EVERY_TASK, needs: "attention", load: async (lesson) => ({ layers: await lesson.layers(), kind: lesson.kind }) },
  residual: { title: "Add, do not replace", tasks: WRITERS, needs: "lens", load: async (lesson) => ({ lens: await lesson.ask("lens", { top: 1 }), preNorm: lesson.model.settings?.norm ? lesson.model.settings.norm === "pre" : null }) },
  writing: { title: "Writing, one token at a time", tasks: WRITERS, load: async (lesson) => ({ cross: lesson.pass.attention.cross ? await lesson.layer("cross", lesson.pass.attention.cross.layers) : null }) },
  masks: { title: "What may not be seen: masks", tasks: EVERY_TASK, needs: "attention", load: async (lesson) => ({ mapKind: lesson.writingKind, map: lesson.writingKind ? await lesson.layer(lesson.writingKind, 1) : null }) },
  temperature: { title: "From scores to one word", tasks: WRITERS, load: async () => ({}) },
  forcing: { title: "Learning with the answers, writing without", tasks: TRANSLATORS, load: async (lesson) => ({ fork: await lesson.fork() }) },
  beam: { title: "Several drafts at once: the beam", tasks: TRANSLATORS, needs: "beam-tree", load: async (lesson) => ({ tree: await lesson.ask("beam-tree", { beam_size: 3 }) }) },
  cache: { title: "Nothing is computed twice: the cache", tasks: WRITERS, load: async (lesson) => ({ layers: (lesson.pass.attention.decoder ?? lesson.pass.attention.causal)?.layers ?? 1 }) },
  prediction: { title: "From vectors to an answer", tasks: ["text_encoding"], load: async () => ({}) },
  recap: { title: "That is all of it", tasks: EVERY_TASK, load: async (lesson) => ({ task: lesson.model.task, seeds: seedsFor(lesson.model, lesson.pass) }) },
};

// A sentence of a model, and everything that lessons ask about it, once.
class Lesson {
  constructor(api, model, pass) {
    Object.assign(this, { api, model, pass, kept: new Map(), focus: {} });
    this.kind = ["encoder", "causal"].find((kind) => pass.attention?.[kind]) ?? Object.keys(pass.attention ?? {})[0] ?? null;
    this.writingKind = ["decoder", "causal"].find((kind) => pass.attention?.[kind]) ?? null;
  }

  has(view) { return (this.model.views ?? []).includes(view); }

  once(key, make) {
    if (!this.kept.has(key)) {
      this.kept.set(key, make());
      this.kept.get(key).catch(() => this.kept.delete(key));
    }
    return this.kept.get(key);
  }

  ask(what, body) { return this.once(`${what} ${JSON.stringify(body)}`, () => this.api.askPass(this.pass, what, body)); }
  embeddings() { return this.ask("embeddings", {}); }
  layer(kind, layer) { return this.once(`${kind}.${layer}`, () => this.api.attention(this.pass, kind, layer)); }
  layers() { return Promise.all(Array.from({ length: this.pass.attention[this.kind].layers }, (_, i) => this.layer(this.kind, i + 1))); }
  neuron() { const { row, layer, head } = this.focus; return this.ask("neuron", { kind: this.kind, layer, head, row }); }

  // The word and the head that a lesson begins with: "it" or a long word, and its most decided head.
  async begin(given) {
    const rows = this.kind ? this.pass.attention[this.kind].rows : this.pass.source_pieces, list = tokenList(rows, this.pass.source_words);
    const known = list.findIndex((token) => token.text.toLowerCase() === "it");
    this.focus = { row: known >= 0 ? known : tellingToken(list), layer: 1, head: 1 };
    if (Number.isInteger(given?.row) && given.row >= 0 && given.row < rows.length) this.focus.row = given.row;
    if (!this.kind) return;
    const { layers, heads, columns } = this.pass.attention[this.kind];
    if (given?.layer >= 1 && given.layer <= layers && given.head >= 1 && given.head <= heads) Object.assign(this.focus, { layer: given.layer, head: given.head });
    else Object.assign(this.focus, clearestHead(await this.layers(), this.focus.row, columns.length, list));
  }

  // Another translation: where the model was least sure, its second choice is forced.
  fork() {
    return this.once("fork", async () => {
      const { steps, produced_tokens: tokens } = this.pass;
      const options = steps.flatMap((step, index) => step.top.filter(({ token, piece }) => token !== tokens[index] && !tokenList([piece])[0].special).slice(0, 1).map((other) => ({ step: index, ...other })));
      const best = options.filter(({ step }) => step < Math.max(2, tokens.length * 0.6)).sort((a, b) => b.probability - a.probability)[0];
      if (!best) return null;
      const pass = await this.api.record({ ...this.pass.request, prefix_tokens: [...tokens.slice(0, best.step), best.token] });
      return { ...best, pass };
    });
  }
}

function clearestHead(layers, row, width, list) {
  let best = { weight: -1, layer: 1, head: 1 };
  layers.forEach(({ shape: [heads, rows, columns], data }, index) => {
    for (let head = 0; head < heads; head++) for (let c = 0; c < Math.min(width, list.length); c++) {
      const weight = data[(head * rows + row) * columns + c];
      if (c !== row && !list[c].special && weight > best.weight) best = { weight, layer: index + 1, head: head + 1 };
    }
  });
  return { layer: best.layer, head: best.head };
}

export function tourPanel(root, app) {
  const { api, session } = app;
  let step = "tokens", lesson = null, view = null, data = null, wanted = null, text = null, shownKey = "", turn = 0;
  const input = h("textarea", { rows: "1", "aria-label": "Sentence of the tour", dir: "auto", spellcheck: "false", oninput: () => later(), onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); later.now(); } } });
  const later = debounced(() => { text = input.value.trim(); open(); app.stateChanged(); }, 500);
  const output = h("p", { class: "output", tabindex: "0", "aria-live": "polite" }), examples = h("div", { class: "tour-examples" }), dots = h("ol", { class: "tour-dots" }), count = h("p", { class: "tour-count" });
  const place = h("div", { class: "tour-place", tabindex: "-1" });
  const back = h("button", { type: "button", onclick: () => move(-1) }, "← Back"), next = h("button", { type: "button", class: "primary", onclick: () => move(1) }, "Next →");
  replace(root, h("div", { class: "tour" }, h("div", { class: "tour-head" }, h("div", { class: "subject" }, input, output), examples), h("nav", { "aria-label": "Steps of the tour" }, dots), place,
    h("div", { class: "tour-foot" }, back, count, next)));
  root.addEventListener("keydown", keyed);
  document.addEventListener("keydown", (event) => { if (event.target === document.body && !root.hidden) keyed(event); });

  const names = () => Object.keys(TOUR).filter((name) => TOUR[name].tasks.includes(session.model.task) && (!TOUR[name].needs || (session.model.views ?? []).includes(TOUR[name].needs)));

  function keyed(event) {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.("input, textarea, select, [role=group], .scroll")) return;
    if (event.key === "ArrowRight") move(1);
    else if (event.key === "ArrowLeft") move(-1);
  }

  function move(by) {
    const all = names(), to = all[all.indexOf(step) + by];
    if (to) goTo(to, true);
  }

  function goTo(name, isFocused = false) {
    step = name;
    app.stateChanged();
    draw().then(() => { if (isFocused) { place.focus({ preventScroll: true }); root.scrollIntoView({ block: "start" }); } });
  }

  function drawFrame() {
    const all = names(), at = all.indexOf(step);
    replace(dots, all.map((name, i) => h("li", {}, h("button", { type: "button", class: i < at ? "done" : "", "aria-current": name === step ? "step" : null, title: TOUR[name].title, "aria-label": `Step ${i + 1}: ${TOUR[name].title}`, onclick: () => goTo(name, true) }))));
    count.textContent = `${at + 1} of ${all.length}`;
    back.disabled = at <= 0;
    next.disabled = at >= all.length - 1;
    next.textContent = at < all.length - 1 ? `Next: ${TOUR[all[at + 1]].title} →` : "The end";
    replace(examples, h("span", { class: "hint" }, "Try: "), SEEDS.filter(({ task }) => task === session.model.task).map((seed) => h("button", { type: "button", class: "quiet", onclick: () => example(seed.text) }, seed.short)));
  }

  function example(chosen) {
    text = chosen;
    input.value = chosen;
    open();
    app.stateChanged();
  }

  // Record the sentence with the model, then show the step.
  async function open() {
    const key = JSON.stringify([session.model.index, text]);
    if (!names().includes(step)) step = names()[0];
    drawFrame();
    if (!text) return replace(place, h("p", { class: "empty" }, "Type a sentence above."));
    if (key === shownKey) return draw();
    shownKey = key;
    replace(place, h("p", { class: "empty" }, h("span", { class: "busy" }), " Computing …"));
    try {
      const { model } = session, pass = await api.record({ model: model.index, text });
      if (key !== shownKey) return null;
      lesson = new Lesson(api, model, pass);
      await lesson.begin(wanted?.focus);
      Object.assign(lesson.focus, pickNumbers(wanted?.focus));
      wanted = null;
      output.textContent = pass.output;
      output.dir = direction(pass.output);
    } catch (error) {
      shownKey = "";
      replace(place, h("p", { class: "empty" }, error.message));
      return app.failed(error);
    }
    return draw();
  }

  async function draw() {
    const mine = ++turn;
    drawFrame();
    if (!lesson) return;
    try {
      const loaded = await TOUR[step].load(lesson);
      if (mine !== turn) return;
      view?.destroy();
      data = { lesson: step, title: TOUR[step].title, pass: lesson.pass, focus: { ...lesson.focus }, ...loaded };
      view = lessonView(place, data, { focus: lesson.focus, focusOn: (change) => { Object.assign(lesson.focus, change); app.stateChanged(); refocus(); }, keep: (change) => { Object.assign(lesson.focus, change); app.stateChanged(); },
        open: (tab) => { if (session.text !== text) session.setText(text); app.go(tab); }, example });
      await view.ready;
    } catch (error) {
      if (mine === turn) replace(place, h("p", { class: "empty" }, `This step cannot be shown for this model: ${error.message}`));
    }
  }

  async function refocus() { // the place of the keyboard survives a drawing
    const label = document.activeElement?.closest?.("[role=group]")?.getAttribute("aria-label");
    await draw();
    if (label) place.querySelector(`[role=group][aria-label="${CSS.escape(label)}"] [aria-pressed=true]`)?.focus({ preventScroll: true });
  }

  return {
    update() {
      text ??= session.segment?.text || session.text.split("\n")[0] || session.model.examples?.[0] || "";
      if (document.activeElement !== input) input.value = text;
      if (JSON.stringify([session.model.index, text]) !== shownKey) open();
    },
    state: () => ({ step, text, ...(lesson ? { focus: lesson.focus } : {}) }),
    restore(state) {
      if (Object.hasOwn(TOUR, state.step ?? "")) ({ step } = state);
      if (typeof state.text === "string") ({ text } = state);
      wanted = state;
      shownKey = "";
    },
    saved: () => (data ? { title: `${data.title}: ${text.slice(0, 60)}`, view: "lesson", data: plainJson(data), state: {} } : null),
  };
}

// A whole word that says something: the longest one that is not at an edge of the text.
function tellingToken(list) {
  const inside = list.slice(1, -2).filter((token) => !token.special && token.starts && (list[token.index + 1]?.starts ?? true));
  return inside.reduce((best, token) => (token.text.length > (best?.text.length ?? 0) ? token : best), null)?.index ?? Math.max(0, list.findIndex((token) => !token.special));
}

function pickNumbers(focus) {
  return Object.fromEntries(Object.entries(focus ?? {}).filter(([name, value]) => ["step", "temperature", "beamStep", "cacheStep"].includes(name) && typeof value === "number" && value >= 0));
}

// JSON: arrays as text, without what only a server understands.
function plainJson(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(plainJson);
  if (isArray(value)) return plainArray(value);
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== "request").map(([name, one]) => [name, plainJson(one)]));
}
