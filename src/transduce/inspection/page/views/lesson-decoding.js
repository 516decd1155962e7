// The tour, third part: how words are written, one after the other.
import { h, replace } from "../lib/element.js";
import { dataTable } from "../lib/table.js";
import { clamp, counted, fixed, percent } from "../lib/numbers.js";
import { tokenList, tokenText, wordList } from "../lib/tokens.js";
import { byWord } from "./arcs.js";
import { compared } from "./run.js";
import { bars, boxes, labelledSlider, lead, note, tryThis, wordRow } from "./lesson-parts.js";
import { quoted } from "./lesson-words.js";

const isPrompt = (pass) => pass.subject === "prompt";
// What was read before a step, what was written at it.
const readBefore = (pass, step) => tokenList(isPrompt(pass) ? pass.source_pieces : pass.read_pieces).slice(0, step + 1);
const writtenAt = (pass) => (isPrompt(pass) ? tokenList([...pass.source_pieces.slice(1), ...(pass.steps.length === pass.source_pieces.length ? ["…"] : [])]) : tokenList(pass.produced_pieces, pass.produced_words));
const stepOf = (pass, live, first = 3) => clamp(live?.focus.step ?? (isPrompt(pass) ? pass.steps.length - 1 : first), 0, pass.steps.length - 1);
const leastSure = ({ steps }) => steps.reduce((least, step, i) => (step.top[0].probability < steps[least].top[0].probability ? i : least), 0);
const candidateRows = (top, taken) => top.map(({ piece, probability, token }) => ({ name: tokenText(tokenList([piece])[0]), share: probability, mark: token === taken || piece === taken ? "taken" : "" }));

function stepChooser(pass, step, live) {
  return wordRow(writtenAt(pass), step, live ? (index) => live.focusOn({ step: index }) : null, { label: "Step", dim: (index) => index > step });
}

export function writingLesson(root, { pass, cross }, live) {
  const step = stepOf(pass, live), { top } = pass.steps[step], taken = isPrompt(pass) ? pass.source_pieces[step + 1] : pass.produced_tokens[step];
  const source = cross ? sourceShares(pass, cross, step) : null, read = readBefore(pass, step), hasEnd = !isPrompt(pass) && pass.produced_pieces.at(-1) !== undefined && pass.ended;
  replace(root, lead(isPrompt(pass) ? "A **language model** does one thing: it reads a text and says how likely each token is to come **next**. Take one, append it, ask again. That is how it writes."
    : "The half that read the sentence is the **encoder**. Now the **decoder** writes, from left to right. At each step it does three things: it attends to the words **written so far**, it attends to the words of the **source** (queries from the decoder, keys and values from the encoder: **cross-attention**), and it gives every token of its list a probability to come next."),
    h("p", { class: "step-title" }, h("b", {}, `Step ${step + 1}`), ` of ${pass.steps.length}. Choose any:`), stepChooser(pass, step, live),
    h("div", { class: "three-steps" },
      h("div", {}, h("h3", {}, "has read so far"), wordRow(read, read.length - 1)),
      source ? h("div", {}, h("h3", {}, "attends to the source"), bars(source.map(({ word, share }) => ({ name: tokenText(word), share })), { most: Math.max(...source.map(({ share }) => share)) }), h("p", { class: "hint" }, "Share of cross-attention in the last layer, mean of its heads, the five largest.", source[0].word.special ? " Heads often rest on the end when they need nothing." : "")) : null,
      h("div", {}, h("h3", {}, "finds likely next"), bars(candidateRows(top.slice(0, 6), taken)), h("p", { class: "hint" }, "Probability of the likeliest tokens. Green: the one that was taken."))),
    hasEnd ? note(["It stops by itself: at the last step the likeliest token is ", h("span", { class: "special" }, "end"), "."]) : null,
    live ? tryThis("Go through the steps with the arrow keys: what is written in one step is read in the next.") : null);
}

function sourceShares(pass, { shape: [heads, rows, columns], data }, step) {
  const mean = Float32Array.from({ length: columns }, (_, c) => { let sum = 0; for (let k = 0; k < heads; k++) sum += data[(k * rows + step) * columns + c]; return sum / heads; });
  const words = wordList(tokenList(pass.source_pieces, pass.source_words)), shares = byWord(mean, words);
  return words.map((word, i) => ({ word, share: shares[i] })).sort((a, b) => b.share - a.share).slice(0, 5);
}

// ---- softmax with temperature

export function temperatureLesson(root, { pass }, live) {
  const step = stepOf(pass, live, leastSure(pass)), { top } = pass.steps[step], place = h("div", {}), taken = isPrompt(pass) ? pass.source_pieces[step + 1] : pass.produced_tokens[step];
  const rest = 1 - top.reduce((sum, { probability }) => sum + probability, 0);
  let temperature = live?.focus.temperature ?? 1;
  function draw() {
    const powers = top.map(({ probability }) => Math.log(probability) / temperature), most = Math.max(...powers), raised = powers.map((one) => Math.exp(one - most)), total = raised.reduce((a, b) => a + b, 0);
    replace(place, bars(candidateRows(top.map((one, i) => ({ ...one, probability: raised[i] / total })), taken)));
  }
  replace(root, lead("The last table of the model gives every token of the list a **score**. The same softmax as in attention turns scores into probabilities: larger scores, larger shares, together 100\u202f%. Then one token has to be taken.",
    "Always the likeliest? Then the model always writes the same. Or roll dice with these probabilities? Then it varies. The **temperature** says how bold the dice are: all scores are divided by it before the softmax. Below 1 the favourite wins more often, above 1 the others get a chance."),
    stepChooser(pass, step, live), labelledSlider("Temperature", { min: 0.1, max: 3, step: 0.1, value: temperature, text: (value) => fixed(value, 1), act: (value) => { temperature = value; live?.keep({ temperature }); draw(); } }), place,
    note(`The ${top.length} likeliest tokens at step ${step + 1}, as shares among themselves. All other tokens of the list${rest > 0.0005 ? `, ${percent(rest)} together at temperature 1,` : ""} are left out here.`),
    tryThis("Move the slider to 0.1, then to 3. Then choose another step."));
  draw();
}

// ---- teacher forcing against free running

export function forcingLesson(root, { pass, fork }, live) {
  const list = tokenList(pass.produced_pieces, pass.produced_words), read = tokenList(pass.read_pieces), steps = pass.steps.slice(0, 14);
  const rows = steps.map((step, i) => [String(i + 1), tokenText(read[i]), tokenText(list[i]), percent(step.probability)]);
  const other = fork ? tokenList([fork.piece])[0] : null;
  replace(root, lead("**Learning, with the answers.** The model sees many sentences with their right translations. At each step it reads the right words so far, whatever it would have said itself, and has to guess the next one. This is **teacher forcing**. No step waits for another: with the causal mask, all steps are computed at once. The more probability the right word got, the better; all tables are nudged a little to give it more."),
    h("div", { class: "scroll texts", tabindex: "0", role: "region", "aria-label": "Steps" }, dataTable({ caption: "If this translation were the right answer", columns: ["step", "reads", "should say", "probability"], rows })),
    lead("**Writing, without them.** When it is used, nobody knows the answer. Each word it writes is read in the next step: **free running**. A slip is not corrected; the model has to live with it."),
    fork ? h("div", { class: "lesson-pair" }, h("figure", { class: "fork" }, h("p", { class: "fork-text" }, h("bdi", { dir: "auto" }, pass.output)), h("figcaption", {}, "What it writes by itself.")),
      h("figure", { class: "fork" }, h("p", { class: "fork-text" }, compared(fork.pass.output, pass.output)), h("figcaption", {}, "The same model, but at step ", h("b", {}, String(fork.step + 1)), " we made it write ", quoted(other), ` (${percent(fork.probability)}) instead of `, quoted(list[fork.step]), ". It went on from there; underlined is what became different."))) : note("At every step of this sentence the model had no other word worth trying."));
}

// ---- the beam

export function beamLesson(root, { tree }, live) {
  const byStep = new Map(), last = Math.max(...tree.nodes.map((node) => node.step)), place = h("div", {}), path = (node) => (node.parent === null ? [] : [...path(tree.nodes[node.parent]), node]);
  for (const node of tree.nodes) if (node.step) byStep.set(node.step, [...(byStep.get(node.step) ?? []), node]);
  let step = clamp(live?.focus.beamStep ?? Math.min(3, last), 1, last);
  const kept = (node) => node.outcome !== "pruned", winner = tree.hypotheses[0];
  const draft = (node) => wordRow(tokenList(path(node).map((one) => one.piece)), path(node).length - 1);
  function draw() {
    const nodes = byStep.get(step) ?? [], alive = nodes.filter(kept), gone = nodes.filter((node) => !kept(node)).slice(0, 4);
    const line = (node) => h("li", { class: `draft ${node.outcome}` }, draft(node), h("span", { class: "draft-score" }, percent(Math.exp(node.log_probability)), h("small", {}, node.outcome === "finished" ? "finished" : node.outcome === "pruned" ? "dropped" : "kept")));
    replace(place, h("p", { class: "step-title" }, h("b", {}, `Step ${step} of ${last}`), `. ${counted(nodes.length, "longer draft", "longer drafts")}, the best first; ${alive.length} kept, ${nodes.length - alive.length} dropped${nodes.length - alive.length > gone.length ? `, of which ${gone.length} are shown` : ""}.`), h("ul", { class: "drafts" }, alive.map(line), gone.map(line)));
  }
  replace(root, lead("The likeliest next word is not always the start of the best sentence. A **greedy** search, which takes the likeliest word at each step, can miss it: a word that looks good now may lead to a bad end. So the model writes several drafts at once. The drafts are the **beam** (each is a **hypothesis**), and this way of writing is **beam search**.",
    `At each step every draft is continued with each of its likeliest words. Of all these longer drafts only the best **${tree.beam_size}** are kept (the beam size); the others are dropped, or **pruned**. A draft that ends is kept as finished. When the search is over, the best finished draft is the translation.`),
    labelledSlider("Step", { min: 1, max: last, step: 1, value: step, text: String, act: (value) => { step = value; live?.keep({ beamStep: step }); draw(); } }), place,
    note("The percentage is the probability of the whole draft so far: the probabilities of its words, multiplied. It can only shrink, so long drafts are compared with a correction for length."),
    winner ? h("p", {}, "The winner: ", h("b", {}, h("bdi", { dir: "auto" }, winner.text)), tree.hypotheses[1] ? [h("br", {}), "Second: ", h("bdi", { dir: "auto" }, compared(tree.hypotheses[1].text, winner.text))] : null) : null,
    live?.open ? h("div", {}, h("button", { type: "button", onclick: () => live.open("beam-tree") }, "Open the whole beam tree")) : null);
  draw();
}

// ---- the cache

export function cacheLesson(root, { pass, layers }, live) {
  const list = isPrompt(pass) ? tokenList(pass.source_pieces) : tokenList(pass.read_pieces), count = Math.min(list.length, 16), place = h("div", {});
  let step = clamp(live?.focus.cacheStep ?? Math.min(5, count), 1, count);
  const cell = (name) => h("span", { class: `cache-cell ${name}` });
  const grid = (isCached) => h("div", { class: "cache-grid", role: "img", "aria-label": isCached ? "with a cache, one column of new work per step" : "without a cache, everything again in each step", style: { "--columns": String(count) } },
    Array.from({ length: step }, (_, s) => Array.from({ length: count }, (_, t) => cell(t > s ? "none" : !isCached || t === s ? "new" : "kept"))));
  function draw() {
    const all = (step * (step + 1)) / 2;
    replace(place, h("div", { class: "lesson-pair" },
      h("figure", {}, h("h3", {}, "Without a cache"), grid(false), h("figcaption", {}, h("b", {}, String(all * layers)), ` pairs of key and value computed in ${counted(step, "step")} (${all} tokens × ${counted(layers, "layer")})`)),
      h("figure", {}, h("h3", {}, "With a cache"), grid(true), h("figcaption", {}, h("b", {}, String(step * layers)), ` computed, the rest is remembered (${step} tokens × ${counted(layers, "layer")})`))));
  }
  replace(root, lead("To write the next word, the newest word attends to all words before it. Their **keys** and **values** do not change any more: because of the causal mask they do not depend on later words. So the model writes them down once and reads them again in every later step. This memory is the **cache**.",
    "It costs memory, and it makes writing fast: with it, a step needs the keys and values of one new word; without it, of all words so far."),
    labelledSlider("Steps written", { min: 1, max: count, step: 1, value: step, text: String, act: (value) => { step = value; live?.keep({ cacheStep: step }); draw(); } }), place,
    note("One row per step, one column per token. Filled: computed in this step. Outlined: read from the cache."));
  draw();
}

// ---- text encoders, and the end

export function predictionLesson(root, { pass }) {
  const { prediction } = pass, list = tokenList(pass.source_pieces, pass.source_words);
  const masked = pass.steps.filter((step) => step.top?.length);
  replace(root, lead("This model writes nothing. After the last layer, every token’s vector knows its whole context. One more learned table, the **head of the model**, turns these vectors into an answer."),
    masked.length ? masked.map((step) => [h("p", {}, "At ", quoted(list[step.position] ?? list[0]), " (place ", String((step.position ?? 0) + 1), ") it expects:"), bars(candidateRows(step.top, step.top[0].token))])
      : prediction ? dataTable({ columns: ["", ""], rows: predictionRows(prediction) }) : note(pass.head === "language" ? "Write <mask> in place of a word, and the model says what it expects there." : "It hands over the vectors themselves: to compare texts, or to search."),
    masked.length ? note("It learned by filling gaps: some words of a text are hidden, and the model has to find them from both sides.") : null);
}

function predictionRows(value, name = "prediction") {
  if (value === null || typeof value !== "object") return [[name, String(typeof value === "number" ? Number(value.toPrecision(4)) : value)]];
  return Object.entries(value).slice(0, 40).flatMap(([key, one]) => predictionRows(one, key));
}

const RECAP = {
  token: ["Token", "A word or a piece of one, with a number."], vector: ["Vector", "The list of numbers that stands for a token, its place and, layer by layer, its context."],
  q: ["Query, key, value", "What a word looks for, what it can be found by, what it hands over."], softmax: ["Softmax", "Turns scores into shares that add up to 100\u202f%."],
  head: ["Head, layer", "One set of tables for Q, K and V; one round of attention and feed-forward network."], mask: ["Causal mask", "Hides later words from the one that writes: their share is 0, so nothing is copied."],
  beam: ["Beam", "Several drafts at once; the best few are kept at each step."], cache: ["Cache", "Keys and values of earlier words, computed once."],
};

export function recapLesson(root, { task, seeds }, live) {
  const names = Object.keys(RECAP).filter((name) => task === "translation" || (name !== "beam" && (task !== "text_encoding" || !["mask", "cache"].includes(name))));
  replace(root, lead("You have seen everything that happens between your sentence and the model’s answer: look up vectors, attend and add, layer by layer, then choose words. There is nothing else inside. How these few sums come to know that a tired _it_ is an animal is learned, and only partly understood.",
    "One warning: attention shows where a head attends. It does not show **why** the model decides. To find out what matters, switch parts off and see what changes."),
    boxes(names.map((name) => ({ letter: "✓", title: RECAP[name][0], text: RECAP[name][1] }))),
    live?.open ? h("div", { class: "controls" }, h("button", { type: "button", class: "primary", onclick: () => live.open("translate") }, task === "translation" ? "Translate your own text" : "Use the model"),
      task === "text_encoding" ? null : h("button", { type: "button", onclick: () => live.open("intervene") }, "Switch parts off"), h("button", { type: "button", onclick: () => live.open("attention") }, "See all heads")) : null,
    seeds?.length ? [h("h3", {}, "Examples you may have met elsewhere"), h("ul", { class: "seed-list" }, seeds.map(({ text, said, act }) => h("li", {}, act && live ? h("button", { type: "button", class: "quiet", onclick: () => live.example(text) }, text) : h("i", {}, text), h("br", {}), h("small", {}, said))))] : null);
}
