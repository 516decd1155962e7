// The first page: the pronoun experiment where its model is loaded, else what is loaded and what to try with it.
import { h, replace } from "../lib/element.js";
import { counted } from "../lib/numbers.js";
import { plainArray } from "../lib/arrays.js";
import { languageName } from "../lib/tokens.js";
import { pronounView } from "../views/pronoun.js";

const DOES = { translation: "translates", language_modeling: "continues texts", text_encoding: "reads texts and labels or completes them" };
const STACKS = { encoder: "an encoder", decoder: "a decoder", causal: "a decoder" };

export function startPanel(root, app) {
  const { session, api } = app;
  let demo = null, shown = null, view = null, wanted = null, data = null;

  async function findDemo() {
    try { demo = await api.demo(); } catch { demo = {}; }
    const isFirst = !location.hash.includes("model=");
    if (demo.sentences && isFirst && session.model.index !== demo.model) session.choose(demo.model);
    else update();
  }

  async function showPronoun() {
    shown = "pronoun";
    replace(root, h("p", { class: "empty" }, h("span", { class: "busy" }), " Translating the two sentences …"));
    try {
      data = await pronounData(api, demo);
      const place = h("div", {});
      replace(root, place, nextSteps(app, true));
      view = pronounView(place, data, {
        off: (heads) => Promise.all(data.sentences.map(({ pass }) => api.askPass(pass, "intervention", { heads }))),
        changed: () => app.stateChanged(), failed: (error) => app.failed(error),
      });
      if (wanted) view.restore(wanted);
    } catch (error) {
      shown = null;
      replace(root, welcome(app, demo));
      app.failed(error);
    }
  }

  function update() {
    if (!demo) return;
    const wants = demo.sentences && session.model.index === demo.model ? "pronoun" : `model ${session.model.index}`;
    if (wants === shown) return;
    view?.destroy();
    view = null;
    if (wants === "pronoun") showPronoun();
    else { shown = wants; replace(root, welcome(app, demo)); }
  }

  findDemo();
  return {
    update,
    state: () => view?.state() ?? null,
    restore(state) { wanted = state; view?.restore(state); },
    async saved() {
      if (!view) return null;
      const sentences = data.sentences.map(({ pass, layers }) => ({ pass: { ...pass, request: undefined }, layers: layers.map(plainArray) }));
      return { title: "What does “it” mean?", view: "pronoun", data: { ...data, sentences }, state: view.state() };
    },
  };
}

async function pronounData(api, demo) {
  const sentences = await Promise.all(demo.sentences.map(async (text) => {
    const pass = await api.record({ model: demo.model, text });
    const count = pass.attention.encoder.layers;
    return { pass, layers: await Promise.all(Array.from({ length: count }, (_, i) => api.attention(pass, "encoder", i + 1))) };
  }));
  return { sentences, focus: demo.focus, head: demo.head, scores: demo.scores, off: {} };
}

function welcome(app, demo) {
  const { model } = app.session, stacks = Object.entries(model.kinds ?? {}).filter(([kind]) => Object.hasOwn(STACKS, kind));
  const languages = model.source_languages?.length && model.target_languages?.length ? ` from ${model.source_languages.map(languageName).join(", ")} to ${model.target_languages.map(languageName).join(", ")}` : "";
  return [
    h("header", { class: "pronoun-intro" }, h("h2", {}, "Watch a Transformer think"),
      h("p", {}, h("bdi", {}, model.name), ` ${DOES[model.task]}${languages}. It has ${counted(model.parameters, "parameter")}`,
        stacks.length ? `: ${stacks.map(([kind, { layers, heads }]) => `${STACKS[kind]} of ${counted(layers, "layer")} with ${counted(heads, "attention head")} each`).join(", and ")}` : "", ".",
        " Everything here is computed live, by this model, on this machine.")),
    nextSteps(app, false),
    h("section", { class: "get-demo" }, h("h2", {}, "See the famous example"),
      demo?.sentences ? [h("p", {}, "A model of the pronoun experiment is loaded, too."),
        h("button", { type: "button", onclick: () => app.session.choose(demo.model) }, "Show what “it” means")]
        : [h("p", {}, "“The animal didn’t cross the street because ", h("i", {}, "it"), " was too tired.” Three minutes of training on one core give a model that knows what ", h("i", {}, "it"), " means, and this page then shows how it knows."),
          h("pre", { tabindex: "0" }, h("code", {}, "transduce demo pronoun\ntransduce studio runs/pronoun"))]),
  ];
}

const NEXT = {
  translation: [["paper", "Take the tour", "How a Transformer translates, from letters to the beam, in short steps on your sentence."],
    ["translate", "Change its mind", "Type a sentence. Click a word that could be better; the model rewrites the rest."],
    ["intervene", "Break it", "Mask a word, switch off a head or a layer, and see what the model needed."]],
  language_modeling: [["paper", "Take the tour", "How a language model picks the next word, in short steps on your text."],
    ["translate", "Let it write", "Type a beginning and watch the words come, with everything it nearly said."],
    ["attention", "See what it attends to", "Every head of every layer, as maps and as lines between words."]],
  text_encoding: [["paper", "Take the tour", "How a Transformer reads a text, in short steps on your sentence."],
    ["translate", "Let it read", "Type a text and see what the model makes of it."],
    ["attention", "See what it attends to", "Every head of every layer, as maps and as lines between words."]],
};

function nextSteps(app, isLast) {
  return h("div", { class: "next-steps" }, isLast ? h("h2", {}, "Now your own sentences") : h("h2", {}, "Three things to try"),
    h("div", { class: "next-cards" }, NEXT[app.session.model.task].map(([tab, title, text]) => h("a", { class: "next-card", href: `#/${tab}`,
      onclick: (event) => { event.preventDefault(); app.go(tab); } }, h("b", {}, title), h("span", {}, text)))));
}
