// The shell of the studio: header, tabs, the sentence bar, links, saving.
//
// A tab is a panel, in a module of its own that exports one function:
//
//   export function attentionPanel(root, app) -> { update(), state(), restore(state), saved() }
//
// It is called once, when its tab is first opened; `root` is its element. All methods are optional.
//   update()       the panel is shown, or what it is about changed while it is shown: read app.session.pass (null until
//                  a sentence is recorded), app.session.model, app.session.options
//   state()        small JSON for the address; call app.stateChanged() when it changes
//   restore(state) what a link had, before the first update()
//   saved()        { title, view, data, state } for "Save as HTML" (view: a name in views/catalog.js), or a Promise of it;
//                  null if there is nothing to save
// app: api (api.js: every request), session (session.js: model, text, recorded passes, forcing tokens),
//      stateChanged(), go(tab, state?), announce(text) (for screen readers), toast(text), failed(error)
import { h, replace, debounced } from "../lib/element.js";
import { startTheme, onTheme } from "../lib/draw.js";
import { themeSwitch } from "../lib/theme.js";
import { Api } from "./api.js";
import { Session } from "./session.js";
import { readLink, writeLink } from "./link.js";
import { saveView } from "./save.js";
import { askKey } from "./key.js";
import { subjectBar } from "./subject.js";
import { startPanel } from "./start.js";
import { translatePanel } from "./translate.js";
import { beamTreePanel } from "./beam-tree.js";
import { attentionPanel } from "./attention.js";
import { intervenePanel } from "./intervene.js";
import { insidePanel } from "./inside.js";
import { runsPanel } from "./runs.js";
import { tourPanel } from "./tour.js";

// name: title, panel, whether the sentence bar is shown above it, the view (or one of the views) that a model must support
const TABS = {
  start: { title: "Start", panel: startPanel, bar: false },
  translate: { title: "Translate", panel: translatePanel, bar: false },
  "beam-tree": { title: "Beam tree", panel: beamTreePanel, bar: true, needs: "beam-tree" },
  attention: { title: "Attention", panel: attentionPanel, bar: true, needs: "attention" },
  intervene: { title: "Intervene", panel: intervenePanel, bar: true, needs: "intervention" },
  inside: { title: "Inside", panel: insidePanel, bar: true, needs: ["lens", "attribution", "head-summary"] },
  runs: { title: "Runs", panel: runsPanel, bar: false },
  paper: { title: "Tour", panel: tourPanel, bar: false },
};

// While every run still trains, there is none: only the curves can be shown.
const NO_MODEL = { index: null, name: "No model", task: "translation", views: [], kinds: {}, examples: [], run: null };

// Whether a model has what a tab shows.
const supports = (model, tab) => (model === NO_MODEL ? tab === "runs" : hasView(model, tab));
const hasView = ({ views = [] }, tab) => !TABS[tab].needs || [TABS[tab].needs].flat().some((one) => views.includes(one));

// Not every model translates.
const USES = { language_modeling: "Generate", text_encoding: "Predict" };
const titleOf = (tab, model) => (tab === "translate" && USES[model?.task]) || TABS[tab].title;

const byId = (id) => document.getElementById(id);

class App {
  constructor() {
    this.api = new Api(askKey);
    this.session = new Session(this.api);
    this.tab = null;
    this.panels = {}; // by tab: { root, panel }
    this.written = ""; // the hash that this page wrote itself
    this.stateChanged = debounced(() => this.writeHash(), 250);
  }

  async start() {
    const mode = startTheme();
    this.drawHeader(mode);
    const { models, version } = await this.api.models();
    this.session.models = models;
    byId("loading").remove();
    this.fillModels(version);
    this.bar = subjectBar(byId("subject"), this);
    const update = () => { this.updatePanel(); this.stateChanged(); };
    for (const name of ["subject", "model", "options"]) this.session.addEventListener(name, update);
    this.session.addEventListener("error", (event) => this.failed(event.detail.error));
    addEventListener("hashchange", () => { if (location.hash !== this.written) this.open(readLink(location.hash)); });
    onTheme(() => this.updatePanel());
    this.open(readLink(location.hash), true);
  }

  // ---- header and tabs

  drawHeader(mode) {
    this.chooser = h("select", { "aria-label": "Model", onchange: () => this.session.choose(Number(this.chooser.value)) });
    byId("masthead").append(this.chooser, h("div", { class: "tools" },
      h("button", { type: "button", onclick: () => this.copyLink() }, "Copy link"),
      h("button", { type: "button", onclick: () => this.save() }, "Save as HTML"), themeSwitch(mode)));
    replace(byId("tabs"), Object.entries(TABS).map(([name, { title }]) => h("a", { href: `#/${name}`, "data-tab": name, onclick: (event) => {
      event.preventDefault(); // keep the sentence and the model, which a plain link does not name
      this.go(name);
    } }, title)));
  }

  fillModels(version) {
    replace(this.chooser, this.session.models.map((one) => h("option", { value: String(one.index) }, one.name)));
    byId("masthead").querySelector("h1").title = `version ${version}`;
  }

  markTabs() {
    for (const link of byId("tabs").children) {
      link.textContent = titleOf(link.dataset.tab, this.session.model);
      link.toggleAttribute("aria-current", false);
      if (link.dataset.tab === this.tab) link.setAttribute("aria-current", "page");
      link.hidden = !supports(this.session.model, link.dataset.tab) && link.dataset.tab !== this.tab;
    }
  }

  // ---- what is shown

  // Restore everything that a link names; `first`: with an example if it names no text.
  open(link, first = false) {
    const { session } = this, model = session.models.find((one) => one.index === link.model) ?? session.model ?? session.models[0] ?? NO_MODEL;
    if (model !== session.model) session.model = model;
    this.chooser.value = String(model.index);
    this.chooser.hidden = model === NO_MODEL;
    session.options = link.options;
    session.at = link.at;
    const text = link.text ?? (first ? model.examples?.[0] ?? "" : session.text);
    session.lines = text === session.text ? session.lines : [];
    session.setText(text);
    session.emit("model");
    if (link.force) this.forceLater(link.force);
    this.go(model === NO_MODEL ? "runs" : Object.hasOwn(TABS, link.tab ?? "") ? link.tab : "start", link.view);
  }

  // A link with forced tokens: once its sentence is recorded, force them.
  forceLater(tokens) {
    const act = () => {
      const { segment, pass } = this.session;
      if (!pass) return;
      this.session.removeEventListener("subject", act);
      this.session.force(segment, tokens).catch((error) => this.failed(error));
    };
    this.session.addEventListener("subject", act);
  }

  go(tab, state = null) {
    this.tab = tab;
    if (!this.panels[tab]) {
      const root = h("div", { class: `panel panel-${tab}` });
      byId("main").append(root);
      this.panels[tab] = { root, panel: TABS[tab].panel(root, this) };
    }
    for (const [name, { root }] of Object.entries(this.panels)) root.hidden = name !== tab;
    byId("subject").hidden = !TABS[tab].bar;
    document.title = `${titleOf(tab, this.session.model)} · transduce studio`;
    this.markTabs();
    if (state) this.panels[tab].panel.restore?.(state);
    this.updatePanel();
    byId("tabs").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // of a phone, only some fit
    this.stateChanged();
  }

  updatePanel() {
    if (!this.tab) return; // the page is starting
    this.bar?.update();
    this.markTabs();
    const title = titleOf(this.tab, this.session.model), able = supports(this.session.model, this.tab), { root, panel } = this.panels[this.tab];
    byId("unable")?.remove();
    root.hidden = !able;
    if (able) panel.update?.();
    else byId("main").append(h("p", { class: "empty", id: "unable" }, `${this.session.model.name} has no view of this kind: ${title}.`));
  }

  // ---- links and files

  linkNow() {
    const { session, tab } = this;
    return writeLink({ tab, model: session.model.index, text: session.text, options: session.options, at: session.at,
      force: session.pass?.request?.prefix_tokens ?? null, view: this.panels[tab]?.panel.state?.() ?? null });
  }

  writeHash() {
    const { hash } = this.linkNow();
    this.written = hash;
    if (location.hash === hash) return;
    const [before] = location.hash.split("?"), [after] = hash.split("?");
    if (before === after) history.replaceState(null, "", hash); // typing makes no history, another tab does
    else history.pushState(null, "", hash);
    this.written = location.hash;
  }

  async copyLink() {
    this.writeHash();
    const { complete } = this.linkNow();
    try {
      await navigator.clipboard.writeText(location.href);
      this.toast(complete ? "Link copied" : "Link copied without the text, which is too long for one");
    } catch { this.toast("The address of this page is the link; copy it from the address bar"); }
  }

  async save() {
    try {
      const content = await this.panels[this.tab]?.panel.saved?.();
      if (!content) return this.toast("There is nothing to save in this view yet");
      this.toast(`Saved ${await saveView(this.api, content)}`);
    } catch (error) { this.failed(error); }
  }

  // ---- messages

  announce(text) { byId("status").textContent = text; }

  toast(text) {
    byId("toast")?.remove();
    const made = h("p", { class: "toast", id: "toast" }, text);
    document.body.append(made);
    this.announce(text);
    setTimeout(() => made.remove(), 3500);
  }

  failed(error) {
    if (error.name === "AbortError") return;
    const again = h("button", { type: "button", onclick: () => {
      notice.remove();
      this.session.retry();
      this.updatePanel();
    } }, "Try again");
    const notice = h("p", { class: "notice" }, h("span", {}, error.message), error.isPassing ? again : null, h("button", { type: "button", onclick: () => notice.remove() }, "Dismiss"));
    replace(byId("notices"), notice);
  }
}

const app = new App();
app.start().catch((error) => {
  byId("loading")?.remove();
  app.failed(error);
});
