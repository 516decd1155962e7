// "Find what matters": the effect of every part, switched off alone, measured in turn.
import { h, replace } from "../lib/element.js";
import { counted, signed } from "../lib/numbers.js";
import { shortened } from "../lib/tokens.js";
import { behind, dataTable } from "../lib/table.js";
import { partKey, partName, partsRequest } from "./switchboard.js";

const RANKED = 6;
const HARDLY = 0.05; // nats

// measure(request, signal) -> Promise of an intervention; null in a saved page.
// onFound(effects): by key { difference, changed, text }; onChoose(part): the user clicked a part of the ranking
export function effectsPart(boards, { measure, onFound, onChoose }) {
  const parts = boards.flatMap(({ layers }) => layers.flat());
  let effects = {}, running = null;
  const start = h("button", { type: "button", class: "primary", onclick: () => (running ? running.abort() : run()) }, "Find what matters");
  const progress = h("progress", { max: String(parts.length), value: "0", hidden: true, "aria-label": "Parts measured" });
  const said = h("span", { class: "hint", role: "status" }), ranking = h("ol", { class: "ranking" });
  const table = behind(() => dataTable({ caption: "Each part switched off alone", columns: ["Part", "Log-probability of the original", "Writes"],
    rows: sorted().map(({ part, effect }) => [partName(part), signed(effect.difference, 4), h("bdi", { dir: "auto" }, effect.changed ? effect.text : "the same")]) }), "All parts as a table");
  const element = h("div", { class: "effects" }, h("div", { class: "controls tight" }, measure ? start : null, progress, said), ranking, table.element);

  const sorted = () => parts.map((part) => ({ part, effect: effects[partKey(part)] })).filter(({ effect }) => effect)
    .sort((a, b) => Math.abs(b.effect.difference) - Math.abs(a.effect.difference));

  async function run() {
    effects = {};
    running = new AbortController();
    const { signal } = running;
    start.textContent = "Cancel";
    progress.hidden = false;
    try {
      for (const [index, part] of parts.entries()) {
        progress.value = index;
        said.textContent = `${index} of ${parts.length}`;
        const { original, changed, has_changed: differs } = await measure(partsRequest([part]), signal);
        if (signal.aborted) break;
        effects[partKey(part)] = { difference: original.difference, changed: differs, text: changed.text };
        onFound({ ...effects });
        drawRanking();
      }
    } catch (error) { if (error.name !== "AbortError") said.textContent = error.message; }
    const complete = Object.keys(effects).length === parts.length;
    progress.hidden = true;
    start.textContent = complete ? "Measure again" : "Find what matters";
    if (!signal.aborted && complete) said.textContent = `${counted(parts.length, "part")} measured, each switched off alone`;
    else if (signal.aborted) said.textContent = `Cancelled after ${Object.keys(effects).length} of ${parts.length}`;
    running = null;
  }

  function drawRanking() {
    const strongest = sorted().filter(({ effect }) => Math.abs(effect.difference) >= HARDLY).slice(0, RANKED);
    table.element.hidden = !Object.keys(effects).length;
    replace(ranking, strongest.map(({ part, effect }) => h("li", {},
      h("button", { type: "button", class: "quiet", disabled: !measure, onclick: () => onChoose(part) }, partName(part)),
      h("b", {}, signed(effect.difference)),
      effect.changed ? h("bdi", { dir: "auto", class: "hint" }, shortened(effect.text, 90)) : null)));
    table.renew();
  }

  drawRanking();
  return {
    element,
    set(found) { effects = { ...found }; drawRanking(); },
    get: () => effects,
    stop() { running?.abort(); },
  };
}
