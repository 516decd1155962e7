// The tab "Inside": the logit lens with norms, contrastive attribution, and what every head attends to.
import { h, replace } from "../lib/element.js";
import { shortened } from "../lib/tokens.js";
import { attributionView } from "../views/attribution.js";
import { headSummaryView } from "../views/head-summary.js";
import { lensView } from "../views/lens.js";

// name: title, the view a model must support, what is said where it does not
const PARTS = {
  lens: { title: "Layer by layer", needs: "lens", lacks: "The logit lens needs a stack of decoder layers, which this model does not have." },
  attribution: { title: "Why this word?", needs: "attribution", lacks: "Predictions of this model cannot be attributed: it writes no tokens one after the other." },
  heads: { title: "What heads do", needs: "head-summary", lacks: "Heads are measured where a model translates or writes, and has attention; maps of a text encoder are in the tab Attention." },
};

export function insidePanel(root, app) {
  const { session, api } = app, states = {}, lenses = new WeakMap(), summaries = new Map();
  let part = "lens", view = null, shown = null; // what is shown: [part, pass or model]
  const tabs = h("div", { class: "segmented", role: "group", "aria-label": "Inside" }, Object.entries(PARTS).map(([name, { title }]) =>
    h("button", { type: "button", "data-part": name, onclick: () => { keep(); part = name; update(); app.stateChanged(); } }, title)));
  const place = h("div", {});
  replace(root, h("div", { class: "controls" }, tabs), place);

  function keep() { if (view && shown) states[shown[0]] = view.state(); }

  function close(...content) {
    view?.destroy();
    view = null;
    replace(place, content);
  }

  const changed = () => app.stateChanged();
  const waiting = (text) => close(h("p", { class: "empty" }, text));

  async function update() {
    const { pass, model } = session, has = (name) => model.views.includes(PARTS[name].needs);
    if (!has(part)) part = Object.keys(PARTS).find(has) ?? part;
    for (const button of tabs.children) {
      button.setAttribute("aria-pressed", button.dataset.part === part);
      button.disabled = !has(button.dataset.part);
      button.title = button.disabled ? PARTS[button.dataset.part].lacks : "";
    }
    const about = part === "heads" ? model : pass;
    if (!has(part)) { shown = null; return waiting(PARTS[part].lacks); }
    if (!about) { shown = null; return waiting(session.absence); }
    if (shown && shown[0] === part && shown[1] === about) return;
    keep();
    const own = (shown = [part, about]), isCurrent = () => shown === own;
    try {
      if (part === "lens") await openLens(about, isCurrent);
      else if (part === "attribution") openAttribution(about);
      else await openHeads(about, isCurrent);
    } catch (error) {
      if (!isCurrent()) return;
      shown = null;
      waiting(error.message);
      if (error.isPassing) app.failed(error);
      return;
    }
    if (isCurrent() && view && states[own[0]]) view.restore(states[own[0]]);
  }

  async function openLens(pass, isCurrent) {
    if (!lenses.has(pass)) {
      waiting("Computing every layer …");
      lenses.set(pass, { ...(await api.askPass(pass, "lens", { top: 8 })), first: firstGenerated(pass) });
    }
    if (!isCurrent()) return;
    close();
    view = lensView(place, lenses.get(pass), { changed });
  }

  // What a language model read of the prompt can be explained, too; the continuation comes first.
  function openAttribution(pass) {
    const { steps, produced_pieces: pieces } = pass;
    const context = { pieces, position: firstGenerated(pass), alternatives: steps.map((step) => step.top) };
    if (states.attribution) delete states.attribution.instead_of; // a token of another sentence
    close();
    view = attributionView(place, { context, ...(linked ? { wish: linked } : {}) }, { attribute: (request, signal) => api.askPass(pass, "attribution", request, signal), changed });
    if (linked) states.attribution = linked;
    linked = null;
  }

  let linked = null; // what a link asks of the attribution

  async function openHeads(model, isCurrent) {
    const own = session.lines.map((line) => line.text).filter((text) => text.trim()).slice(0, 64), texts = model.examples?.length ? null : own;
    if (texts && !texts.length) { shown = null; return waiting("Type a sentence above: this model has no examples to be measured on."); }
    const key = JSON.stringify([model.index, texts]);
    if (!summaries.has(key)) {
      waiting("Measuring every head on the sample …");
      summaries.set(key, await api.headSummary(model.index, texts));
    }
    if (!isCurrent()) return;
    close();
    view = headSummaryView(place, summaries.get(key), { changed, open: (kind, layer, head) => app.go("attention", { kind, layer, head }) });
  }

  return {
    update,
    state: () => ({ part, ...(view ? { view: view.state() } : {}) }),
    restore(state) {
      if (Object.hasOwn(PARTS, state.part ?? "")) part = state.part;
      if (state.view && typeof state.view === "object") {
        if (part === "attribution") linked = state.view;
        else states[part] = state.view;
      }
      shown = null;
    },
    saved() {
      if (!view) return null;
      const about = part === "heads" ? session.model.name : shortened(session.pass.source, 60);
      const data = part === "lens" ? lenses.get(session.pass) : part === "attribution" ? view.content() : [...summaries.values()].at(-1);
      return { title: `${PARTS[part].title}: ${about}`, view: part === "heads" ? "head-summary" : part, data, state: view.state() };
    },
  };
}

// Where the continuation of a prompt begins; in a translation, everything was generated.
function firstGenerated({ subject, generated, produced_pieces: pieces }) {
  return subject === "prompt" ? Math.max(0, Math.min(pieces.length - 1, pieces.length - (generated || 1))) : 0;
}
