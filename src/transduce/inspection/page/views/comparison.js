// What an intervention changed: both texts with their differences marked, and every token's probability before and after.
import { h, replace } from "../lib/element.js";
import { diverging, inkOn } from "../lib/draw.js";
import { direction, tokenList, tokenName, tokenText, wordList } from "../lib/tokens.js";
import { fixed, percent, signed } from "../lib/numbers.js";
import { behind, dataTable } from "../lib/table.js";

const STRONG = 3; // nats at which the colour of a token is full: a twentieth of the probability
const MOST_DIFFED = 1500; // words; beyond that, differences are marked position by position

// Which words of two texts belong to a longest common subsequence -> [Set of indices in a, Set of indices in b]
export function commonWords(a, b) {
  const kept = [new Set(), new Set()];
  if (a.length > MOST_DIFFED || b.length > MOST_DIFFED) {
    a.forEach((word, i) => { if (word === b[i]) { kept[0].add(i); kept[1].add(i); } });
    return kept;
  }
  const wide = b.length + 1, length = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i * wide + j] = a[i] === b[j] ? length[(i + 1) * wide + j + 1] + 1 : Math.max(length[(i + 1) * wide + j], length[i * wide + j + 1]);
    }
  }
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { kept[0].add(i++); kept[1].add(j++); } else if (length[(i + 1) * wide + j] >= length[i * wide + j + 1]) i++;
    else j++;
  }
  return kept;
}

const wordsOf = (output) => wordList(tokenList(output.pieces)).filter((word) => !word.special);
const meanProbability = (values) => Math.exp(values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length));

// A text, word by word, with those that the other text lacks marked. The text itself is what the model wrote; where its
// words are not found in it (a tokenizer that rewrites characters), the words are shown as the tokens have them.
function markedText(output, words, common, tag) {
  const parts = [];
  let at = 0, lost = false;
  for (const [index, word] of words.entries()) {
    const text = word.text.replaceAll("↵", "\n"), found = output.text.indexOf(text, at);
    parts.push(found < 0 || lost ? (index ? " " : "") : output.text.slice(at, found), common.has(index) ? text : h(tag, {}, text));
    lost = found < 0;
    if (!lost) at = found + text.length;
  }
  if (!lost) parts.push(output.text.slice(at));
  return h("p", { class: "written", tabindex: "0", dir: direction(output.text), lang: "" }, parts);
}

const tiny = (share) => (share < 1e-4 ? "0.0\u202f%" : percent(share)); // a card has no room for more; the table has it

function comparedToken(token, before, after) {
  const change = Math.max(-1, Math.min(1, (after - before) / STRONG)), colour = diverging(change);
  const [p, q] = [Math.exp(before), Math.exp(after)];
  const bar = (share, kind) => h("span", { class: `gauge ${kind}` }, h("span", { style: { "inline-size": `${(share * 100).toFixed(2)}%` } }));
  return h("li", { class: "compared-token", style: Math.abs(change) > 0.05 ? { background: colour, color: inkOn(colour) } : {} },
    h("span", { class: "name" }, token.starts || token.special ? null : h("span", { class: "joint" }, "·"), tokenText(token)), bar(p, "before"), bar(q, "after"),
    h("span", { class: "shares", dir: "ltr" }, `${tiny(p)} → ${tiny(q)}`));
}

function comparedTokens(title, output) {
  const tokens = tokenList(output.pieces);
  return h("div", { class: "compared-block" }, h("h3", {}, title),
    h("ol", { class: "compared-tokens", tabindex: "0", "aria-label": title, dir: direction(output.text) }, tokens.map((token, i) => comparedToken(token, output.before[i], output.after[i]))));
}

function comparisonTable({ original, changed, has_changed: differs }) {
  const rows = (name, output) => tokenList(output.pieces).map((token, i) => [tokenName(token), name, percent(Math.exp(output.before[i])), percent(Math.exp(output.after[i])),
    fixed(output.before[i], 4), fixed(output.after[i], 4), signed(output.after[i] - output.before[i], 4)]);
  return dataTable({ caption: "Each token by teacher forcing, with the intact and with the changed model",
    columns: ["Token", "Of", "Before", "After", "Log-probability before", "after", "Difference"],
    rows: [...rows("intact model", original), ...(differs ? rows("changed model", changed) : [])] });
}

function comparedFigure(name, value, note = null) {
  return h("div", { class: "compared-figure" }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null));
}

function comparedFigures({ original, changed, has_changed: differs }, noun) {
  const { log_probability_before: before, log_probability_after: after, difference } = original;
  return h("dl", { class: "compared-figures" },
    comparedFigure(`Probability of the original ${noun}`, `${chance(before)} → ${chance(after)}`, `log ${fixed(before)} → ${fixed(after)}`),
    comparedFigure("Log-probability changes by", h("b", { class: difference < -0.05 ? "fell" : "" }, signed(difference)), difference < -0.05 ? `${largeNumber(-difference)} times less likely` : difference > 0.05 ? `${largeNumber(difference)} times more likely` : "hardly any effect"),
    comparedFigure("Mean probability of a token", `${percent(meanProbability(original.before))} → ${percent(meanProbability(original.after))}`),
    differs ? comparedFigure(`Probability of the new ${noun}`, `${chance(changed.log_probability_before)} → ${chance(changed.log_probability_after)}`) : null);
}

const LARGE = new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 2 });
const PLAIN = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// A number by its natural logarithm, as people say it: 2.4, 7,400, 51 million, 10¹⁸.
function largeNumber(nats) {
  if (nats >= Math.log(9.5e14)) return `10${Array.from(String(Math.round(nats / Math.LN10)), (digit) => POWERS[digit]).join("")}`;
  return nats < Math.log(10) ? Math.exp(nats).toFixed(1) : (nats < Math.log(995_000) ? PLAIN : LARGE).format(Math.exp(nats));
}

// A probability by its logarithm: as a percentage, or as one in so many.
export const chance = (log) => (log > Math.log(1e-3) ? percent(Math.exp(Math.min(0, log))) : `1 in ${largeNumber(-log)}`);

// The part of a view that shows one comparison: show(result), empty(content), busy(whether).
export function comparisonPart(noun) {
  const body = h("div", { class: "comparison-body" }), headline = h("h2", {}), spinner = h("span", { class: "working", hidden: true }, "computing …");
  const element = h("section", { class: "comparison", "aria-label": "What changed" }, h("div", { class: "headline" }, headline, spinner), body);
  let shown = null;
  const table = behind(() => comparisonTable(shown));

  // `alone`: what the model writes for the second sentence of a patch, by itself
  function show(result, alone = null) {
    shown = result;
    const { original, changed, has_changed: differs } = result, words = [original, changed].map(wordsOf);
    const common = commonWords(...words.map((list) => list.map((word) => word.text)));
    const count = words[1].length - common[1].size, gone = words[0].length - common[0].size;
    headline.textContent = differs ? `The ${noun} changes` : `The ${noun} stays the same`;
    replace(body,
      h("ul", { class: "changes" }, result.changes.map((change) => h("li", {}, h("bdi", {}, change.replaceAll("\u2581", ""))))),
      h("div", { class: "both" },
        h("h3", {}, "Intact model"), markedText(original, words[0], common[0], "del"),
        h("h3", {}, "Changed model"), differs ? markedText(changed, words[1], common[1], "ins") : h("p", { class: "written same" }, "writes the same"),
        alone === null ? null : [h("h3", {}, "Second sentence by itself"), h("p", { class: "written", tabindex: "0", dir: direction(alone), lang: "" }, alone)]),
      h("p", { class: "unseen" }, differs ? `${gone} words replaced or removed, ${count} new` : "No word changed"),
      comparedFigures(result, noun),
      comparedTokens(differs ? `The original ${noun}, token by token` : "Token by token", original),
      differs ? comparedTokens(`The new ${noun}, token by token`, changed) : null,
      h("p", { class: "hint" }, h("span", { class: "gauge before swatch" }), " before, ", h("span", { class: "gauge after swatch" }), " after; orange tokens became less likely, blue ones more likely"),
      table.element);
    table.renew();
  }

  function empty(title, ...content) {
    shown = null;
    headline.textContent = title;
    replace(body, content);
  }
  return { element, show, empty, busy(whether) { spinner.hidden = !whether; element.setAttribute("aria-busy", whether); } };
}
