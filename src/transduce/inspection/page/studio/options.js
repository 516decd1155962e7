// Options of a translation: the search, and what must and must not be written.
import { h, replace, debounced } from "../lib/element.js";
import { chips } from "./chips.js";

// name: [title, least, most, step, methods that have it, explanation]
const NUMBERS = {
  beam_size: ["Beam size", 1, 16, 1, ["beam"], "Hypotheses that the search keeps at each step"],
  length_penalty: ["Length penalty", 0, 2, 0.1, ["beam"], "Above 0, long translations are not at a disadvantage"],
  coverage_penalty: ["Coverage penalty", 0, 2, 0.1, ["beam"], "Lowers the score of translations that leave out source words"],
  temperature: ["Temperature", 0.1, 2, 0.1, ["sample"], "Below 1 likely tokens are drawn more often, above 1 less often"],
  top_p: ["Top p", 0.05, 1, 0.05, ["sample"], "Draw from the smallest set of tokens with this total probability"],
  repetition_penalty: ["Repetition penalty", 0.5, 2, 0.1, ["beam", "greedy", "sample"], "Above 1, tokens that were written become less likely"],
};
const METHODS = { beam: "Beam search", greedy: "Greedy", sample: "Sample" };

export function optionsBar(app) {
  const { session } = app;
  const numbers = h("div", { class: "controls numbers" }), constraints = h("div", { class: "constraints" });
  const root = h("details", { class: "options" }, h("summary", {}, "Search and vocabulary"), numbers, constraints);
  const apply = debounced((options) => session.setOptions(options), 200);

  const searchNow = () => session.options.search ?? {};
  const defaults = () => session.model.search ?? {};
  const methodNow = () => searchNow().method ?? defaults().method ?? "beam";

  function change(search) { // options of another method are errors, so they go with it
    const method = search.method ?? methodNow();
    const kept = Object.entries({ ...searchNow(), ...search }).filter(([name]) => !NUMBERS[name] || NUMBERS[name][4].includes(method));
    if (method !== "sample") kept.splice(0, kept.length, ...kept.filter(([name]) => name !== "seed"));
    apply({ ...session.options, search: Object.fromEntries(kept) });
  }

  function slider(name) {
    const [title, least, most, step, , about] = NUMBERS[name];
    const value = searchNow()[name] ?? defaults()[name] ?? (name === "repetition_penalty" || name === "temperature" || name === "top_p" ? 1 : 0);
    const shown = h("output", {}, String(value));
    const input = h("input", { type: "range", min: String(least), max: String(most), step: String(step), value: String(value),
      oninput: () => { shown.textContent = input.value; change({ [name]: Number(input.value) }); } });
    return h("label", { title: about }, title, input, shown);
  }

  function drawNumbers() {
    const method = methodNow();
    const select = h("select", { onchange: () => change({ method: select.value, ...(select.value === "sample" ? { seed: 1 } : {}) }) },
      Object.entries(METHODS).map(([name, title]) => h("option", { value: name, selected: name === method }, title)));
    const again = h("button", { type: "button", onclick: () => change({ seed: (searchNow().seed ?? 0) + 1 }) }, "Draw again");
    replace(numbers, h("label", {}, "Method", select), Object.keys(NUMBERS).filter((name) => NUMBERS[name][4].includes(method)).map(slider),
      method === "sample" ? again : null,
      Object.keys(searchNow()).length ? h("button", { type: "button", class: "quiet", onclick: () => session.setOptions({ ...session.options, search: undefined }) }, "Reset") : null);
  }

  function drawConstraints() {
    if (!session.isTranslator) return replace(constraints);
    const given = session.options, set = (name, value) => apply.now({ ...session.options, [name]: value });
    replace(constraints,
      chips({ title: "Glossary", hint: "dog = Hündin", values: Object.entries(given.terms ?? {}).map(([source, target]) => `${source} = ${target}`), pair: true,
        change: (values) => set("terms", values.length ? Object.fromEntries(values.map((one) => one.split("=").map((part) => part.trim()))) : undefined) }),
      chips({ title: "Must contain", hint: "a word", values: given.force ?? [], change: (values) => set("force", values.length ? values : undefined) }),
      chips({ title: "Must not contain", hint: "a word", values: given.forbid ?? [], change: (values) => set("forbid", values.length ? values : undefined) }));
  }

  function draw() {
    const focused = root.contains(document.activeElement) && document.activeElement.type === "range";
    if (!focused) drawNumbers(); // a slider that is being moved is not replaced under the hand
    drawConstraints();
  }
  session.addEventListener("options", draw);
  session.addEventListener("model", draw);
  return { element: root, draw };
}
