// Runs: one sentence through the checkpoints of a run, models side by side, and the curves of a training, live.
import { h, replace, debounced } from "../lib/element.js";
import { plainArray } from "../lib/arrays.js";
import { runView, reportOfTwo } from "../views/run.js";
import { emergenceView } from "../views/emergence.js";

const POLL = 4000; // milliseconds between two looks at a run that is still training
const MOST_FRAMES = 24; // checkpoints on the slider; of more, an even selection

export function runsPanel(root, app) {
  const { api, session } = app;
  let runs = null, stages = null, view = null, report = null, reported = "", timer = null, wanted = null, text = null;
  let chosen = { run: null, other: null };
  const kept = new Map(); // reports by run
  const isShown = () => !root.hidden && !document.hidden;
  const input = h("textarea", { rows: "1", "aria-label": "Sentence", dir: "auto", spellcheck: "false", oninput: () => retext(), onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); retext.now(); } } });
  const retext = debounced(() => { text = input.value.trim(); showStages(); app.stateChanged(); }, 500);
  const pickers = h("div", { class: "controls" }), stagePlace = h("div", {}), reportPlace = h("div", {}), reportPickers = h("div", { class: "controls" });
  replace(root, h("section", { class: "plain-section" }, h("h2", {}, "Watch it learn"),
    h("p", { class: "hint" }, "While a model trains, checkpoints are saved. Move the slider: the same sentence, translated by the model as it was after that many updates. Choose a second model to see both side by side."),
    h("div", { class: "subject" }, input), pickers, stagePlace), h("div", { class: "controls report-head" }, h("h2", {}, "Training"), reportPickers), reportPlace);

  // ---- the sentence through checkpoints

  const framesOf = (model) => {
    const run = runs.find((one) => one.index === model.run), all = run?.checkpoints ?? [];
    const kept = all.length <= MOST_FRAMES ? all : Array.from({ length: MOST_FRAMES }, (_, i) => all[Math.round((i * (all.length - 1)) / (MOST_FRAMES - 1))]);
    return [...kept.map(({ index, update }) => ({ checkpoint: index, label: update.toLocaleString("en") })), { checkpoint: null, label: "model", title: "the model itself" }];
  };

  function drawPickers() {
    const option = (model, index) => h("option", { value: String(model.index), selected: model.index === index }, model.name);
    const second = stages[1] ?? null;
    replace(pickers,
      h("label", {}, "Model ", h("select", { onchange: (event) => { stages[0] = Number(event.target.value); showStages(); } }, session.models.map((model) => option(model, stages[0])))),
      h("label", {}, "compare with ", h("select", { onchange: (event) => { stages = event.target.value === "" ? [stages[0]] : [stages[0], Number(event.target.value)]; showStages(); } },
        h("option", { value: "" }, "none"), session.models.map((model) => option(model, second)))));
  }

  function showStages() {
    view?.destroy();
    input.hidden = !session.models.length;
    if (input.hidden) return replace(stagePlace, h("p", {}, "No model has been saved yet. Once the training has ended, start the studio again to watch its checkpoints translate."));
    const models = stages.map((index) => session.models.find((one) => one.index === index) ?? session.model);
    drawPickers();
    if (!text) return replace(stagePlace, h("p", { class: "empty" }, "Type a sentence that the model can read."));
    view = emergenceView(stagePlace, { text, stages: models.map((model) => ({ name: model.name, kinds: model.kinds, model: model.index, frames: framesOf(model) })) }, {
      frame: (stage, frame) => api.record({ model: stage.model, text, ...(frame.checkpoint === null ? {} : { checkpoint: frame.checkpoint }) }),
      layer: (pass, kind, layer) => api.attention(pass, kind, layer),
      changed: () => app.stateChanged(), failed: (error) => app.failed(error),
    });
    if (wanted?.view) { view.restore(wanted.view); wanted.view = null; }
    return view;
  }

  // ---- curves

  function drawReportPickers() {
    const options = (index) => runs.map((run) => h("option", { value: String(run.index), selected: run.index === index }, run.name));
    const change = (name) => (event) => { chosen[name] = event.target.value === "" ? null : Number(event.target.value); reported = ""; look(); app.stateChanged(); };
    replace(reportPickers, h("label", {}, "Run ", h("select", { onchange: change("run") }, options(chosen.run))),
      h("label", {}, "compare with ", h("select", { onchange: change("other") }, h("option", { value: "" }, "none"), options(chosen.other))),
      h("span", { class: "hint" }, isTraining() ? "Training: the curves follow the journal." : ""));
  }

  const isTraining = () => [chosen.run, chosen.other].some((index) => runs.some((run) => run.index === index && !run.ended));

  // A run's report; asked for again only when its journal has grown.
  async function reportOf(index) {
    const { version } = runs.find((run) => run.index === index), before = kept.get(index);
    if (before && before.version !== undefined && before.version === version) return before;
    kept.set(index, await api.run(index));
    return kept.get(index);
  }

  async function look() {
    clearTimeout(timer);
    if (chosen.run === null) return replace(reportPlace, h("p", { class: "empty" }, "No run is served: a model alone has no journal. Start the studio with a run folder."));
    try {
      const found = await Promise.all([chosen.run, chosen.other].filter((index) => index !== null).map(reportOf));
      const data = found.length > 1 ? reportOfTwo(...found) : found[0], key = JSON.stringify(data);
      if (key !== reported) {
        const isSame = reported !== "" && report;
        reported = key;
        if (isSame) report.update(data);
        else {
          report?.destroy();
          report = runView(reportPlace, data, { changed: () => app.stateChanged() });
          if (wanted?.report) { report.restore(wanted.report); wanted.report = null; }
        }
      }
    } catch (error) { app.failed(error); }
    if (isTraining()) timer = setTimeout(poll, POLL);
    return null;
  }

  async function poll() { // only while somebody looks
    if (!isShown()) { timer = setTimeout(poll, POLL); return; }
    try { ({ runs } = await api.runs()); } catch { /* said by the next request */ }
    drawReportPickers();
    look();
  }

  async function start() {
    try { ({ runs } = await api.runs()); } catch (error) { runs = []; if (error.status !== 404) app.failed(error); }
    const known = (index) => runs.some((run) => run.index === index);
    chosen = { run: known(wanted?.run) ? wanted.run : known(session.model.run) ? session.model.run : runs[0]?.index ?? null, other: known(wanted?.other) ? wanted.other : null };
    const models = (wanted?.models ?? []).filter((index) => session.models.some((one) => one.index === index));
    stages = models.length ? models.slice(0, 2) : [session.model.index];
    text = text || session.segment?.text || session.text.split("\n")[0] || session.model.examples?.[0] || "";
    input.value = text;
    drawReportPickers();
    showStages();
    look();
  }

  let isStarted = false;
  return {
    update() {
      if (!isStarted) { isStarted = true; start(); }
    },
    state: () => (stages ? { models: stages, text, run: chosen.run, ...(chosen.other === null ? {} : { other: chosen.other }), view: view?.state(), report: report?.state() } : wanted),
    restore(state) {
      wanted = { ...state };
      if (typeof state.text === "string") text = state.text;
      if (stages) start();
    },
    saved: () => (view ? savedStages(view, text) : null),
  };
}

// What was loaded so far, with arrays as text.
function savedStages(view, text) {
  const saved = view.stages.map((stage) => ({ ...stage, frames: stage.frames.filter((frame) => frame.pass).map(({ label, title, pass, layers }) => ({ label, title, pass: { ...pass, request: undefined },
    layers: Object.fromEntries(Object.entries(layers ?? {}).map(([key, array]) => [key, plainArray(array)])) })) }));
  return { title: `${text.slice(0, 60)}: checkpoints`, view: "emergence", data: { text, stages: saved }, state: view.state() };
}
