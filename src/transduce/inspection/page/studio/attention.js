// Attention of the sentence above, live: layers are fetched when their heads are seen.
import { h, replace } from "../lib/element.js";
import { plainArray } from "../lib/arrays.js";
import { attentionView } from "../views/attention.js";
import { MEAN } from "../views/map-store.js";

// A recorded pass as the attention view takes it.
export function attentionData(pass, roles = null) {
  const produced = pass.produced_words ?? null;
  return { source: pass.source, output: pass.output, subject: pass.subject, generated: pass.generated ?? 0,
    kinds: pass.attention, roles, words: { source: pass.source_words ?? null, produced, read: produced && [null, ...produced.slice(0, -1)] },
    steps: pass.steps.map((step, position) => ({ position, token: pass.produced_tokens[position], piece: pass.produced_pieces[position], ...step })) };
}

export function attentionPanel(root, app) {
  const { session, api } = app, summaries = new Map(); // model -> Promise of its head summary
  let view = null, shown = null, wanted = null;

  function live(pass) {
    return { layer: (kind, layer) => api.attention(pass, kind, layer), neuron: (place) => api.askPass(pass, "neuron", place), changed: () => app.stateChanged() };
  }

  function update() {
    const { pass } = session;
    if (pass === shown && view) return;
    const state = wanted ?? view?.state();
    view?.destroy();
    view = null;
    shown = pass;
    if (!pass) return replace(root, h("p", { class: "empty" }, session.absence));
    replace(root);
    view = attentionView(root, attentionData(pass), live(pass));
    if (state) view.restore(state);
    wanted = null;
    addRoles(pass, view);
  }

  async function addRoles(pass, current) { // measured once per model, on sample sentences; the maps do not wait for it
    const { index, examples, views } = session.model;
    if (!examples?.length || !(views ?? []).includes("head-summary")) return; // nothing to measure it on
    if (!summaries.has(index)) summaries.set(index, api.headSummary(index));
    try {
      const { heads } = await summaries.get(index);
      if (current === view) current.setRoles(heads);
    } catch { summaries.delete(index); }
  }

  return { update, state: () => view?.state() ?? wanted ?? {}, restore: (state) => { wanted = state; shown = null; },
    saved: async () => (view ? { title: `Attention: ${shown.source.slice(0, 60)}`, view: "attention", data: await savedMaps(api, shown, view), state: view.state() } : null) };
}

// Every layer of every kind, as it came, and the arithmetic of the row that is kept.
async function savedMaps(api, pass, view) {
  const data = attentionData(pass, view.data.roles), kinds = {};
  for (const [kind, about] of Object.entries(pass.attention)) {
    const arrays = [];
    for (let layer = 1; layer <= about.layers; layer++) {
      arrays.push(plainArray(await api.attention(pass, kind, layer)));
    }
    kinds[kind] = { ...about, arrays };
  }
  const { kind, layer, head, row } = view.state();
  const neuron = row !== null && layer !== MEAN && head !== MEAN ? await api.askPass(pass, "neuron", { kind, layer, head, row }) : null;
  return { ...data, kinds, neuron };
}
