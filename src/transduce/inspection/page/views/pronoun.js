// What "it" means: two sentences that differ in their last word, what "it" attends to, and what happens without a head.
import { h, replace } from "../lib/element.js";
import { tokenList, wordList, tokenText, pieceText } from "../lib/tokens.js";
import { decodeArray } from "../lib/arrays.js";
import { percent, indexOfLargest } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";
import { arcs, byWord } from "./arcs.js";

// Which noun of the famous sentence each pronoun stands for.
const MEANING = {
  es: { noun: "das Tier", english: "the animal" }, sie: { noun: "die Straße", english: "the street" }, er: null,
  il: { noun: "l’animal", english: "the animal" }, elle: { noun: "la rue", english: "the street" },
};
const MEANT = ["the animal", "the street"]; // of the first and the second sentence
const isSameHead = (a, b) => a !== null && b !== null && a.join() === b.join();
const placeOfHead = ([, layer, head]) => `layer ${layer}, head ${head}`;

// data: { sentences: [{ pass, layers: [ARRAY heads × rows × columns] }], focus, head, scores, off: { "1.2": [Intervention, Intervention] } }
// live: { off(heads) -> Promise of two interventions, go(tab) }
export function pronounView(root, data, live = null) {
  let chosen = data.head ?? ["encoder", 1, 1], isOff = false, layers = null, shown = [], turn = 0;
  const endings = data.sentences.map(({ pass }, index) => endingOf(pass, data.focus, MEANT[index]));
  const decisive = decisiveHeads(data);
  const cards = endings.map((one) => endingCard(one));
  const chooser = h("div", { class: "head-chips", role: "group", "aria-label": "Head whose attention is drawn" });
  const toggle = h("button", { type: "button", role: "switch", "aria-checked": false, class: "switch", onclick: () => setOff(!isOff) });
  const verdict = h("p", { class: "verdict", role: "status" });
  const table = behind(() => weightTable());
  const caption = h("p", { class: "hint pronoun-caption" });
  replace(root, h("div", { class: "view pronoun" }, introduction(endings),
    h("div", { class: "pronoun-strip" }, toggle, verdict),
    h("div", { class: "pronoun-cards" }, cards.map(({ element }) => element)), caption,
    h("section", { class: "pronoun-test" },
      h("h2", {}, "Try the other heads"),
      h("p", {}, "An attention head lets each word collect from the others what it needs. The encoder, the half of the model that reads English, has ",
        h("b", {}, String(heads().length)), " of them. Choose one to see which words it attends to from ", h("i", {}, data.focus), ". Then switch it off and see whether that mattered."),
      chooser, table.element),
    honest(data)));

  async function start() {
    layers = await Promise.all(data.sentences.map((one) => Promise.all(one.layers.map(decodeArray))));
    drawChips();
    draw();
  }

  function weightsOf(index, [, layer, head]) {
    const { shape: [, rows, columns], data: values } = layers[index][layer - 1], from = (head - 1) * rows * columns + endings[index].row * columns;
    return byWord(values.subarray(from, from + columns), endings[index].words);
  }

  function heads() {
    const { layers: count, heads: each } = data.sentences[0].pass.attention.encoder;
    return Array.from({ length: count * each }, (_, i) => ["encoder", Math.floor(i / each) + 1, (i % each) + 1]);
  }

  function drawChips() {
    replace(chooser, heads().map((head) => {
      const goals = endings.map((one, index) => { const weights = weightsOf(index, head); return { word: one.words[indexOfLargest(weights)], weight: Math.max(...weights) }; });
      const isDecisive = decisive.some((one) => isSameHead(one, head));
      return h("button", { type: "button", class: `head-chip${isDecisive ? " decisive" : ""}`, "aria-pressed": isSameHead(head, chosen), "data-head": head.slice(1).join("."),
        onclick: () => choose(head) },
        h("span", { class: "head-name" }, `Layer ${head[1]} · head ${head[2]}`, isDecisive ? h("span", { class: "badge" }, "decides") : null),
        goals.map(({ word, weight }) => h("span", { class: "head-goal" }, `${data.focus} → `, tokenText(word), ` ${percent(weight)}`)));
    }));
  }

  function draw() {
    for (const one of shown) one.destroy();
    shown = endings.map((one, index) => arcs(cards[index].picture, { words: one.words, from: one.from, weights: weightsOf(index, chosen), hue: index ? "second" : "first",
      marked: [one.last] }));
    for (const button of chooser.children) button.setAttribute("aria-pressed", button.dataset.head === chosen.slice(1).join("."));
    const isGroup = group(chosen).length > 1;
    replace(toggle, h("span", { class: "knob", "aria-hidden": "true" }), isGroup ? `Switch off the ${group(chosen).length} heads that decide together` : `Switch off ${placeOfHead(chosen)}`);
    toggle.setAttribute("aria-checked", isOff);
    replace(caption, captionOf());
    table.renew();
    return drawOutputs();
  }

  // What the drawn head attends to, in words; a weight that is spread is said to be.
  function captionOf() {
    const goals = endings.map((one, index) => { const weights = weightsOf(index, chosen); return { word: one.words[indexOfLargest(weights)], weight: Math.max(...weights) }; });
    const part = ({ word, weight }) => (weight < 0.3 ? "several words at once" : [h("b", {}, tokenText(word)), ` (${percent(weight)})`]);
    return [`Drawn: the attention of encoder ${placeOfHead(chosen)}. From `, h("i", {}, data.focus), " it attends to ", part(goals[0]), " in the first sentence and to ", part(goals[1]), " in the second. The width of a line is its share of the attention."];
  }

  // Heads that decide only together are switched off together.
  const group = (head) => (decisive.some((one) => isSameHead(one, head)) ? decisive : [head]);

  async function drawOutputs() {
    const mine = ++turn, key = group(chosen).map((head) => head.slice(1).join(".")).join("+");
    toggle.disabled = !live && !data.off[key];
    let results = null;
    if (isOff) {
      try { results = data.off[key] ?? (live ? (data.off[key] = await live.off(group(chosen))) : null); } catch (error) { live.failed(error); }
    }
    if (mine !== turn) return;
    const changed = endings.map((one, index) => cards[index].show(one, results?.[index] ?? null));
    replace(verdict, results ? verdictOf(changed, results, endings) : intactText(endings));
    verdict.classList.toggle("broken", changed.some(Boolean));
  }

  function setOff(value) { isOff = value; live?.changed(); draw(); }
  function choose(head) { chosen = head; live?.changed(); draw(); }

  function weightTable() {
    return dataTable({ caption: `Attention from “${data.focus}”, encoder ${placeOfHead(chosen)}`, columns: ["word", ...endings.map((one) => `too ${one.words[one.last].text}`)],
      rows: endings[0].words.map((word, i) => [i === endings[0].last ? "last word" : word.text, ...endings.map((_, index) => weightsOf(index, chosen)[i].toFixed(3))]) });
  }

  start();
  return {
    state: () => ({ head: chosen.slice(1), off: isOff }),
    restore(state) {
      const [layer, head] = Array.isArray(state.head) ? state.head : [];
      if (heads().some((one) => one[1] === layer && one[2] === head)) chosen = ["encoder", layer, head];
      isOff = state.off === true;
      if (layers) draw();
    },
    destroy() { for (const one of shown) one.destroy(); },
  };
}

// The heads that the experiment found to carry the decision; none if ablating all of them changed little.
function decisiveHeads({ head, scores }) {
  const found = (scores?.ablated_heads ?? []).filter(([kind]) => kind === "encoder");
  if (found.length) return scores.ablated_accuracy < 0.75 ? found : [];
  return head ? [head] : [];
}

// What of a sentence is drawn: its words, the row of the word that attends, the pronoun of the translation.
function endingOf(pass, focus, meant) {
  const words = wordList(tokenList(pass.source_pieces, pass.source_words));
  const from = words.findIndex((word) => word.text === focus), last = words.findLastIndex((word) => !word.special);
  return { pass, words, from, row: words[from]?.from ?? 0, last, meant, pronoun: pronounOf(pass.produced_pieces) };
}

function pronounOf(pieces) {
  const index = pieces.findLastIndex((piece) => Object.hasOwn(MEANING, pieceText(piece).toLowerCase()));
  return index < 0 ? null : { index, text: pieceText(pieces[index]).toLowerCase() };
}

const isRight = (pronoun, one) => pronoun !== null && MEANING[pronoun.text]?.english === one.meant;

function intactText(endings) {
  const right = endings.filter((one) => isRight(one.pronoun, one)), said = endings.map((one) => one.pronoun?.text ?? "no pronoun").join(" and ");
  if (right.length === endings.length) return [h("b", {}, `Two endings, two pronouns: ${said}. `), "Both are right. Now switch off the head that is drawn."];
  return [h("b", {}, `This model writes ${said}. `), `${right.length} of ${endings.length} are right; it was trained too briefly, or another way.`];
}

function introduction([one]) {
  const isGerman = one.pronoun?.text === "es" || one.pronoun?.text === "sie";
  return h("header", { class: "pronoun-intro" },
    h("h2", {}, "The animal didn’t cross the street because ", h("mark", {}, "it"), " was too …"),
    h("p", {}, "Too tired: the animal. Too wide: the street. You know at once; a machine has to find out. ",
      isGerman ? "German shows whether it did: the animal is " : "French shows whether it did: the animal is ", h("b", {}, isGerman ? "es" : "il"), ", the street is ",
      h("b", {}, isGerman ? "sie" : "elle"), ". This small Transformer was never told; it learned it from translated sentences."));
}

function endingCard(one) {
  const picture = h("div", { class: "arcs-place", role: "img", "aria-label": `Attention from it in the sentence that ends in ${one.words[one.last].text}; the numbers are in the table below` });
  const output = h("p", { class: "pronoun-output", "aria-live": "polite" }), choice = h("div", { class: "pronoun-choice" });
  const element = h("section", { class: "pronoun-card" }, h("h3", {}, "… too ", h("b", {}, one.words[one.last].text)), picture, output, choice);
  return { element, picture, show(of, result) { return showOutput(output, choice, of, result); } };
}

// The translation with its pronoun marked, and how sure the model is of it; returns whether the pronoun changed.
function showOutput(output, choice, one, result) {
  const pieces = result ? result.changed.pieces : one.pass.produced_pieces;
  const pronoun = pronounOf(pieces), before = new Set(wordTexts(one.pass.produced_pieces)), isGood = isRight(pronoun, one);
  const isBroken = Boolean(result) && isRight(one.pronoun, one) && !isGood;
  const words = wordList(tokenList(pieces)).filter((word) => !word.special);
  replace(output, words.map((word, i) => {
    const isPronoun = pronoun && word.from <= pronoun.index && pronoun.index < word.to;
    const isNew = result && !before.has(word.text);
    const text = h("bdi", { dir: "auto" }, word.text);
    return [i ? " " : "", isPronoun ? h("mark", { class: isGood ? "right" : "wrong" }, text) : isNew ? h("u", {}, text) : text];
  }));
  const meaning = pronoun ? MEANING[pronoun.text] : null;
  replace(choice, pronounShares(one, result, pronoun).map(({ text, share, isTaken }) => h("div", { class: `share${isTaken ? " taken" : ""}` },
    h("b", {}, text), h("span", { class: "fill-track" }, h("span", { class: `fill-bar${isTaken && !isGood ? " wrong" : ""}`, style: { "inline-size": `${Math.max(0.5, share * 100)}%` } })), h("span", {}, percent(share)))),
  h("p", { class: "hint" }, meaning ? [`${pronoun.text} = ${meaning.noun}, `, h("b", {}, meaning.english), isGood ? ": right" : isBroken ? ": wrong now" : ": wrong"] : "no pronoun that fits either noun"));
  return isBroken;
}

const wordTexts = (pieces) => wordList(tokenList(pieces)).map((word) => word.text);

function pronounShares(one, result, pronoun) {
  if (!one.pronoun) return [];
  if (!result) {
    const { top } = one.pass.steps[one.pronoun.index];
    return top.map((each) => ({ text: pieceText(each.piece).toLowerCase(), share: each.probability })).filter(({ text }) => Object.hasOwn(MEANING, text)).slice(0, 3)
      .map((each) => ({ ...each, isTaken: each.text === one.pronoun.text }));
  }
  const found = [{ text: one.pronoun.text, share: Math.exp(result.original.after[one.pronoun.index]), isTaken: pronoun?.text === one.pronoun.text }];
  if (pronoun && pronoun.text !== one.pronoun.text) found.unshift({ text: pronoun.text, share: Math.exp(result.changed.after[pronoun.index]), isTaken: true });
  return found;
}

function verdictOf(changed, results, endings) {
  const broken = endings.filter((_, index) => changed[index]);
  if (broken.length) {
    const names = broken.map((one) => `“too ${one.words[one.last].text}”`).join(" and ");
    return [h("b", {}, `The gender breaks in ${names}. `), "Nothing else was touched, so this part of the model carries the decision. That is evidence; the arcs alone are not."];
  }
  if (results.some((one) => one.has_changed)) return [h("b", {}, "The pronouns stay right, but other words change. "), "This head does some work, yet it does not decide what ", h("i", {}, "it"), " means."];
  return [h("b", {}, "Nothing changes. "), "Whatever this head attends to, the translation does not need it here."];
}

function honest({ scores }) {
  const { ablated_accuracy: averaged, zeroed_accuracy: zeroed } = scores ?? {}, count = scores?.ablated_heads?.length ?? 0;
  const [heads, own] = count === 1 ? ["the deciding head", "its"] : [`${count} heads`, "their"];
  return h("section", { class: "honest" }, h("h2", {}, "Before you believe the picture"),
    h("ul", {},
      h("li", {}, h("b", {}, "Where a head attends is not why the model decides. "), "A head can attend to the right noun and not matter at all. Switch one off and see."),
      h("li", {}, h("b", {}, "The famous picture is one of several solutions. "), "Textbooks draw a line from ", h("i", {}, "it"), " to the right noun. Of ten trainings with other random numbers, all ten got the pronoun right, and one drew that picture. ",
        "Others gather the decision at ", h("i", {}, "because"), ", ", h("i", {}, "was"), " and ", h("i", {}, "too"), ", at the last word, or elsewhere: ", h("code", {}, "transduce demo pronoun --seeds 10"), " repeats this."),
      scores?.pronoun_accuracy !== undefined ? h("li", {}, h("b", {}, `Measured on this model: ${percent(scores.pronoun_accuracy)} of the pronouns are right`),
        " in test sentences whose adjective and noun it never saw together",
        averaged !== undefined && count ? [`. With ${heads} switched off: `,
          typeof zeroed === "number" ? [h("b", {}, percent(zeroed)), ` where ${own} output becomes zero everywhere, as the switch above does it, and `] : "",
          h("b", {}, percent(averaged)), ` where ${own} output becomes ${own} average at the words in question, which removes what ${count === 1 ? "it says" : "they say"} but disturbs the rest less. One of the two nouns at random would be 50\u202f%.`] : ".") : null));
}
