// The beam tree of the sentence above; a branch that was pruned can be forced and taken over.
import { h, replace } from "../lib/element.js";
import { beamTreeView } from "../views/beam-tree.js";

export function beamTreePanel(root, app) {
  const { session, api } = app;
  let view = null, shown = undefined, wanted = null, asked = {}, number = 0;

  const live = (pass, segment) => ({
    force: (tokens) => api.record({ ...pass.request, prefix_tokens: tokens }),
    use: (forced) => { session.take(segment, forced); app.toast("The translation is now the forced one; undo in Translate"); },
    search: (options) => { asked = options; draw(pass); },
    changed: () => app.stateChanged(),
  });

  // The beam of the pass; of a greedy search, whose tree would have one branch, that of the model's options.
  function beamOf(pass) {
    const search = { ...session.model.search, ...pass.request?.search };
    return Math.min(16, search.method === "beam" ? search.beam_size : Math.max(4, search.beam_size ?? 4));
  }

  async function draw(pass) {
    const { segment } = session, own = ++number, state = wanted ?? { ...view?.state(), node: null };
    wanted = null;
    if (!view) replace(root, h("p", { class: "empty" }, "Searching …"));
    try {
      const data = await api.askPass(pass, "beam-tree", { beam_size: beamOf(pass), ...asked });
      if (own !== number) return;
      view?.destroy();
      view = beamTreeView(root, data, live(pass, segment));
      view.restore(state);
    } catch (error) {
      if (own !== number) return;
      view = null;
      shown = undefined;
      replace(root, h("p", { class: "empty" }, error.message));
      if (error.isPassing) app.failed(error);
    }
  }

  function update() {
    const { pass } = session;
    if (pass === shown) return;
    shown = pass;
    if (pass) return draw(pass);
    number++;
    view?.destroy();
    view = null;
    return replace(root, h("p", { class: "empty" }, session.absence));
  }

  return { update, state: () => ({ ...view?.state(), ...asked }), restore: (state) => { wanted = state; shown = undefined; if (Number.isInteger(state.beam_size)) asked = { beam_size: state.beam_size }; },
    saved: () => (view ? { title: `Beam tree: ${view.data.source.slice(0, 60)}`, view: "beam-tree", data: { ...view.data, forced: view.forced.map(({ pass, ...one }) => one) }, state: view.state() } : null) };
}
