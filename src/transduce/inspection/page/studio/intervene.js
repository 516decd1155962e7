// The tab "Intervene": the view of interventions with answers of the server.
import { h, replace } from "../lib/element.js";
import { shortened } from "../lib/tokens.js";
import { interventionView } from "../views/intervention.js";

export function intervenePanel(root, app) {
  const { session, api } = app;
  let view = null, shown = null, wished = null; // the recorded pass that is shown; what a link wants

  function live(pass) {
    return {
      intervene: (request, signal) => api.askPass(pass, "intervention", request, signal),
      patch: (request, signal) => api.askPass(pass, "patch", request, signal),
      adopt: (text) => {
        const lines = session.lines.map((line) => line.text), { line, segment } = session;
        lines[session.at.line] = line.segments.map((one) => (one === segment ? text : one.text) + (one.after ?? "")).join("");
        session.setText(lines.join("\n"));
      },
      changed: () => app.stateChanged(),
    };
  }

  function close(message) {
    view?.destroy();
    view = shown = null;
    replace(root, h("p", { class: "empty" }, message));
  }

  function update() {
    const { pass, model } = session;
    if (!model.views.includes("intervention")) return close("Parts of this model cannot be switched off: choose a translation or language model with attention.");
    if (!pass) return close(session.absence);
    if (pass === shown) return;
    const kept = wished ?? (shown && shown.model === pass.model ? keep(view.state()) : null);
    view?.destroy();
    shown = pass;
    view = interventionView(root, dataOf(pass, model), live(pass));
    wished = null;
    if (kept && Object.keys(kept).length) view.restore(kept);
  }

  // Of another sentence, only the parts that are off stay; positions belong to the sentence they were chosen in.
  const keep = ({ off }) => (off ? { off } : null);

  return {
    update,
    state: () => view?.state() ?? wished ?? {},
    restore(state) {
      if (view) view.restore(state);
      else wished = state;
    },
    saved: () => (view ? { title: `Intervention: ${shortened(shown.source, 60)}`, view: "intervention", data: view.content(), state: view.state() } : null),
  };
}

function dataOf(pass, model) {
  const translates = model.task === "translation";
  return { task: model.task, source: pass.source, output: pass.output, pieces: pass.source_pieces, words: pass.source_words, produced: pass.produced_pieces,
    kinds: model.kinds, feed_forward: model.feed_forward, can: { mask: translates && Boolean(model.kinds.encoder), patch: model.views.includes("patch") } };
}
