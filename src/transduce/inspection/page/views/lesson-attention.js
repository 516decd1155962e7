// The tour, second part: how words ask words, with the numbers of one head.
import { h, replace } from "../lib/element.js";
import { behind, dataTable } from "../lib/table.js";
import { fixed, indexOfLargest, percent, signed } from "../lib/numbers.js";
import { tokenList, tokenName, tokenText, wordList } from "../lib/tokens.js";
import { arcs, byWord } from "./arcs.js";
import { around, boxes, lead, note, smallMap, tryThis, wordRow } from "./lesson-parts.js";
import { quoted } from "./lesson-words.js";

const MOST_SCORES = 18; // rows of the arithmetic; of more keys, those with the largest shares
const LONGEST = 18; // words of a sentence that is drawn with arcs; of a longer one, the part around the word
const LONGEST_IN_CELL = 12; // the same in the small picture of each head
const MOST_STEPS = 16; // rows and columns of the causal mask

// The row of one head over whole words, for the sentence of a pass: those around the word, and of all words the one with
// the largest share.
function rowOf({ pass, layers, kind }, { row, layer, head }, longest = LONGEST) {
  const { rows, columns } = pass.attention[kind], { data } = layers[layer - 1], from = (head - 1) * rows.length * columns.length + row * columns.length;
  const all = wordList(tokenList(columns, pass.source_words)), own = all.findIndex((word) => word.from <= row && row < word.to);
  const weights = byWord(data.subarray(from, from + columns.length), all), shown = around(own, all.length, longest), most = indexOfLargest(weights);
  return { words: all.slice(shown.from, shown.to), weights: weights.slice(shown.from, shown.to), from: own - shown.from, best: all[most], share: weights[most], all: all.map((word, i) => ({ ...word, weight: weights[i] })) };
}

const chooserOf = ({ pass, kind }, live) => wordRow(tokenList(pass.attention[kind].rows, pass.source_words), live?.focus.row ?? 0, live ? (row) => live.focusOn({ row }) : null, { label: "Word that attends" });

export function askLesson(root, data, live) {
  const { words, weights, from, best, share, all } = rowOf(data, data.focus), picture = h("div", { class: "arcs-place", role: "img", "aria-label": "Attention from the chosen word; the numbers are in the table" });
  const isCausal = data.kind === "causal";
  const table = behind(() => dataTable({ columns: ["word", "share"], rows: all.map((word) => [word.text, percent(word.weight)]) }));
  const drawn = weights.reduce((sum, weight) => sum + weight, 0);
  replace(root, lead("A word alone says little. What is _it_? Which _bank_? **Attention** lets every word collect what it needs from the others. For this, three new vectors are computed from each word’s vector. Each has its own learned table of numbers (a **matrix**); every new number is a weighted sum of the old ones, and the weights stand in the table:"),
    boxes([{ letter: "Q", title: "Query", text: "vector × table Q: what this word is looking for", hue: "q" }, { letter: "K", title: "Key", text: "vector × table K: what this word can be found by", hue: "k" }, { letter: "V", title: "Value", text: "vector × table V: what this word hands over when it is found", hue: "v" }]),
    lead("One word **attends** to the others: its **query** is compared with the **key** of every word. The better they fit, the larger that word’s **attention weight**, its share. Then all **values** are mixed in these shares, and the word that attends receives the mixture. It works like a search: you type a query, it is compared with the keys of all pages, and you get their values, the best match most of all."),
    chooserOf(data, live), picture,
    lead([quoted(words[from]), " attends most to ", quoted(best), ": ", h("b", {}, percent(share)), " of the mixture that ", quoted(words[from]), " receives is the value of ", quoted(best), "."]),
    note(["All shares together are 100\u202f%.", words.length < all.length ? ` The ${words.length} words around it are drawn${drawn < 0.999 ? `; of its attention they have ${percent(drawn)}` : ""}.` : "",
      isCausal ? " A word attends only to words before it, and to itself." : " A word may attend to every word, also to itself and to the end.",
      ` You may have expected another word. This is head ${data.focus.head} of layer ${data.focus.layer}: what a head looks for is learned, and every head looks for something else.`]),
    live ? tryThis("Choose another word and see what it attends to.") : null, table.element);
  return arcs(picture, { words, from, weights });
}

// ---- the arithmetic of one head

export function arithmeticLesson(root, { pass, neuron, focus, kind }, live) {
  const list = tokenList(neuron.columns, pass.source_words), [asker] = tokenList([neuron.row_piece]), width = neuron.query.length;
  const order = neuron.weight.map((weight, i) => ({ weight, i })).filter(({ i }) => neuron.allowed[i]).sort((a, b) => b.weight - a.weight).map(({ i }) => i);
  const best = order.find((i) => i !== focus.row) ?? order[0], sums = neuron.product.map((row) => row.reduce((sum, value) => sum + value, 0));
  const exponentials = neuron.score.map((score) => (score === null ? 0 : Math.exp(score - Math.max(...neuron.score.filter((one) => one !== null)))));
  const terms = [0, 1, 2].filter((c) => c < width).map((c) => [c ? " + " : "", h("span", { class: "term" }, h("span", { class: "q" }, fixed(neuron.query[c], 2)), " × ", h("span", { class: "k" }, fixed(neuron.key[best][c], 2)))]);
  const isBiased = neuron.bias.some((value) => value !== 0), divisor = 1 / neuron.scale;
  const columns = ["key of", "1  q · k", neuron.scale === 1 ? "2  not scaled" : `2  ÷ ${fixed(divisor, 2)}`, ...(isBiased ? ["+ distance"] : []), h("span", {}, "3  e", h("sup", {}, "score")), "share"];
  const shown = list.length <= MOST_SCORES ? list : order.slice(0, MOST_SCORES).sort((a, b) => a - b).map((i) => list[i]), hidden = neuron.allowed.filter((one) => !one).length;
  const rows = shown.map(({ index: i, ...token }) => [h("bdi", {}, tokenName(token)), ...(neuron.allowed[i]
    ? [fixed(sums[i], 2), fixed(sums[i] * neuron.scale, 2), ...(isBiased ? [signed(neuron.bias[i], 2)] : []), exponentials[i] < 0.00005 && exponentials[i] > 0 ? "≈ 0" : fixed(exponentials[i], 4), smallShare(neuron.weight[i])]
    : ["hidden", "−∞", ...(isBiased ? [""] : []), "0", "0\u202f%"])]);
  const mixed = neuron.value ? mixture(neuron, order, list) : null;
  replace(root, lead(["These are the real numbers of ", h("b", {}, `layer ${focus.layer}, head ${focus.head}`), " while ", quoted(asker), " attends. They are made of three vectors, each a word’s vector times a table of this head:"]), chooserOf({ pass, kind }, live),
    h("div", { class: "numbers-line" }, vectorLine("query", asker, neuron.query, "q"), vectorLine("key", list[best], neuron.key[best], "k"), neuron.value ? vectorLine("value", list[best], neuron.value[best], "v") : null),
    h("ol", { class: "sums" },
      h("li", {}, h("h3", {}, "Compare: query · key"), h("p", {}, "The query of ", quoted(asker), " and the key of ", quoted(list[best]), ` have ${width} numbers each. Multiply them in pairs, then add up:`),
        h("p", { class: "numbers-line" }, terms, width > 3 ? ` + … ${width - 3} more` : "", " = ", h("b", {}, fixed(sums[best], 2))), h("p", { class: "hint" }, "The same with every other key: column 1 of the table. Large means: they fit.")),
      h("li", {}, h("h3", {}, neuron.scale === 1 ? "This model does not scale" : "Scale"), h("p", {}, neuron.scale === 1 ? "Many models divide by the root of the width here." : `Sums of ${width} products grow with the width. Divide by √${width} = ${fixed(divisor, 2)}, so that they stay moderate: ${fixed(sums[best], 2)} ÷ ${fixed(divisor, 2)} = `, neuron.scale === 1 ? null : h("b", {}, fixed(sums[best] * neuron.scale, 2)), "."),
        isBiased ? h("p", { class: "hint" }, "This model also adds a number for the distance of the two words.") : null),
      h("li", {}, h("h3", {}, "Turn scores into shares: softmax"), h("p", {}, "Raise e (2.718…) to each score, so that everything is positive and the best stands out. Divide by the total, so that all shares add up to 100\u202f%. For ", quoted(list[best]), ": ", h("b", {}, percent(neuron.weight[best])), "."),
        h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Shares" }, dataTable({ caption: `Shares of “${asker.text}”`, columns, rows })), h("p", { class: "hint" }, "Column 3 is written relative to the best score, which gives 1. That changes no share.", shown.length < list.length ? ` Of ${list.length} tokens, those with the largest shares.` : "", hidden ? ` ${hidden} later tokens are hidden: their score is −∞, their share 0.` : "")),
      h("li", {}, h("h3", {}, "Mix the values"), h("p", {}, "Take each word’s value times its share and add up. ", quoted(asker), " receives the result: it now carries something of the words it attends to."), mixed, mixed ? h("p", { class: "hint" }, "Blue is above zero, orange below.") : null)));
}

const vectorLine = (name, token, values, hue) => h("div", {}, `${name} of `, quoted(token), " = [ ", h("span", { class: hue }, Array.from(values.slice(0, 3), (value) => fixed(value, 2)).join(",  ")), values.length > 3 ? `,  … ${values.length - 3} more ]` : " ]");

const smallShare = (share) => (share < 0.0001 ? "< 0.01\u202f%" : percent(share));

function mixture(neuron, order, list) {
  const shown = order.slice(0, 4), width = Math.min(24, neuron.output.length), most = Math.max(...neuron.value.flat().map(Math.abs), 1e-9);
  const line = (name, values, isSum = false) => h("div", { class: `mix-line${isSum ? " total" : ""}` }, h("span", {}, name), smallMap({ values: Float32Array.from(values.slice(0, width)), rows: 1, columns: width, names: [], most, label: "numbers of a vector" }), h("code", {}, `${fixed(values[0], 2)}, ${fixed(values[1] ?? 0, 2)}, …`));
  return h("div", { class: "mix" }, shown.map((i) => line([smallShare(neuron.weight[i]), " × ", tokenText(list[i])], neuron.value[i])), order.length > shown.length ? h("p", { class: "hint" }, `+ ${order.length - shown.length} more with smaller shares`) : null, line("= result", neuron.output, true));
}

// ---- many heads

export function headsLesson(root, data, live) {
  const { pass, kind, focus } = data, { layers: count, heads } = pass.attention[kind], drawn = [];
  const cells = Array.from({ length: count * heads }, (_, i) => {
    const layer = Math.floor(i / heads) + 1, head = (i % heads) + 1, { words, weights, from, best, share } = rowOf(data, { ...focus, layer, head }, LONGEST_IN_CELL), picture = h("div", {});
    drawn.push(() => arcs(picture, { words, from, weights, hue: layer === focus.layer && head === focus.head ? "" : "quiet" }));
    return h(live ? "button" : "div", { type: live ? "button" : null, class: "head-cell", "aria-pressed": live ? layer === focus.layer && head === focus.head : null, onclick: live ? () => live.focusOn({ layer, head }) : null },
      h("span", { class: "head-name" }, `Layer ${layer} · head ${head}`), h("span", { class: "head-goal" }, "→ ", tokenText(best), ` ${percent(share)}`), picture);
  });
  replace(root, lead(`One question is not enough. _Who does this? When? What belongs to it?_ So the same arithmetic runs several times side by side, each time with its own tables for Q, K and V. Each is a **head**. This model has ${heads} heads in each of ${count} ${count === 1 ? "layer" : "layers"}; a **layer** is one round of attention. → names the word that gets the largest share.`),
    chooserOf(data, live), h("div", { class: "head-cells" }, cells),
    note("The results of all heads of a layer are put side by side and mixed by one more learned table. Nobody tells a head what to look for; that comes from training. Some heads have a clear task, many do not."),
    live ? tryThis("Choose a head here: the steps before use it, too. Choose another word above.") : null);
  const made = drawn.map((draw) => draw());
  return { destroy() { for (const one of made) one.destroy(); } };
}

// ---- masks

const steps = ({ from, to }) => Array.from({ length: to - from }, (_, i) => from + i);

export function masksLesson(root, { pass, map, mapKind }, live) {
  const parts = [], isWriting = mapKind !== null;
  if (isWriting) {
    const { rows, columns } = pass.attention[mapKind], rowNames = tokenList(mapKind === "causal" ? rows : pass.produced_pieces, mapKind === "causal" ? null : pass.produced_words), read = tokenList(columns);
    const at = Math.min(live?.focus.step ?? Math.min(4, rows.length - 1), rows.length - 1), { shape: [heads], data } = map, size = rows.length * columns.length, shown = around(at, Math.min(rows.length, columns.length), MOST_STEPS);
    const mean = Float32Array.from({ length: size }, (_, i) => { let sum = 0; for (let k = 0; k < heads; k++) sum += data[k * size + i]; return sum / heads; });
    const grid = h("div", { class: "mask-grid", role: "img", "aria-label": "Which tokens each step may attend to; later ones are hidden", style: { "--columns": String(shown.to - shown.from) } },
      h("i", {}), read.slice(shown.from, shown.to).map((token) => h("span", { class: "column-name" }, tokenText(token))), steps(shown).map((r) => [h("small", { class: r === at ? "now" : "" }, tokenText(rowNames[r])), steps(shown).map((c) => h("span", { class: c > r ? "hidden-cell" : r === at ? "seen current" : "seen", style: c > r ? {} : { "--weight": String(Math.sqrt(mean[r * columns.length + c]).toFixed(3)) } }))]));
    parts.push(h("h3", {}, "1. The causal mask: no look into the future"),
      lead(mapKind === "causal" ? "This model learns by guessing the next word at **every** place of a text at once. The text lies before it, so it could cheat: just look at the next word. The **causal mask** hides everything that comes later. The score of a hidden word becomes −∞ (minus infinity), so its share is exactly 0."
        : "The decoder writes from left to right. To learn it, it is given sentences with their right translations, and guesses every word of a translation at once. The right words lie before it, so it could cheat: just copy the next word. The **causal mask** hides everything that comes later. The score of a hidden word becomes −∞ (minus infinity), so its share is exactly 0.",
      mapKind === "causal" ? "When it writes a new text, the later words do not exist yet. With the mask, learning and writing are the same task." : "When it translates a new sentence, the later words do not exist yet. With the mask, learning and translating are the same task. The source has no causal mask: it is complete, so its words attend in both directions."),
      wordRow(rowNames, at, live ? (step) => live.focusOn({ step }) : null, { label: "Token that is written" }),
      h("div", { class: "lesson-pair" }, h("figure", {}, grid, h("figcaption", {}, "One row per step: the token that is written. One column per token that could be read: ", mapKind === "causal" ? "the tokens in order" : ["first ", tokenText(read[0]), ", then its own words in order"], ". Blue: seen, stronger with a larger share. Striped: hidden.", shown.to - shown.from < rows.length ? ` These are ${shown.to - shown.from} of ${rows.length} steps.` : "")),
        h("div", {}, h("p", {}, mapKind === "causal" ? "At " : "When it writes ", h("b", {}, tokenText(rowNames[at])), ", it sees:"), wordRow(read.slice(0, at + 1), -1), read.length > at + 1 ? [h("p", {}, "It does not see:"), wordRow(read.slice(at + 1), -1, null, { dim: () => true })] : null)));
  }
  const words = tokenList(pass.source_pieces, pass.source_words).slice(0, 10), fewer = words.slice(0, Math.max(1, words.length - 3)), pads = words.length - fewer.length;
  const padding = Array.from({ length: pads }, (_, index) => ({ index, text: "padding", special: "padding", starts: true }));
  parts.push(h("h3", {}, isWriting ? "2. The padding mask: filler does not count" : "The padding mask: filler does not count"),
    lead("Several sentences are computed together, as a rectangle of numbers. Shorter ones are filled up with **padding**. The padding mask hides the filler in the same way, so a sentence gets the same result alone and in company."),
    wordRow(words, -1), wordRow([...fewer, ...padding], -1, null, { dim: (i) => i >= fewer.length }), note("Two sentences of one batch: the second, made shorter here for show, is filled up with padding that no word attends to."));
  if (!isWriting) parts.unshift(lead("This model reads the whole text at once and may look in both directions. Only one thing is hidden from it."));
  replace(root, parts);
}

// ---- residuals, feed-forward networks, norms

export function residualLesson(root, { pass, lens, preNorm }, live) {
  const stack = lens.norms.encoder ? "encoder" : Object.keys(lens.norms)[0], norms = lens.norms[stack], pieces = stack === "encoder" ? lens.source_pieces : lens.read_pieces;
  const list = tokenList(pieces, stack === "encoder" ? pass.source_words : null), at = Math.min(live?.focus.row ?? 1, list.length - 1), most = Math.max(...norms.flat());
  const table = behind(() => dataTable({ caption: "Length of each vector after each layer", columns: ["token", "start", ...norms.slice(1).map((_, i) => `layer ${i + 1}`)], rows: list.map((token, i) => [tokenName(token), ...norms.map((layer) => fixed(layer[i], 2))]) }));
  replace(root, lead("What attention collects does not replace a word’s vector. It is **added** to it: the word keeps what it was and gains what it learned. This is the **residual connection**."),
    h("div", { class: "flow", role: "img", "aria-label": "vector, plus attention, plus feed-forward network, gives the vector for the next layer" },
      h("span", { class: "flow-box" }, "vector"), h("span", {}, "+"), h("span", { class: "flow-box q" }, "attention", h("small", {}, "from other words")), h("span", {}, "+"), h("span", { class: "flow-box v" }, "feed-forward", h("small", {}, "each word by itself")), h("span", {}, "="), h("span", { class: "flow-box" }, "vector", h("small", {}, "for the next layer"))),
    lead("The second addition comes from a **feed-forward network**: two learned tables that work on each word by itself, after it has collected from the others. These two additions are one layer. The layers are stacked: later rounds attend to what earlier rounds found.",
      `Adding makes vectors longer and longer. **Normalisation** ${preNorm === false ? "brings each sum" : "brings a copy of the vector"} back to a standard size ${preNorm === false ? "after every addition" : "before every use"}, so that the numbers stay in a range in which learning works.`),
    wordRow(list, at, live ? (row) => live.focusOn({ row }) : null, { label: "Word whose vector is followed" }),
    h("div", { class: "lesson-bars" }, norms.map((layer, i) => h("div", { class: "lesson-bar taken" }, h("span", { class: "bar-name" }, i ? `after layer ${i}` : "at the start"), h("span", { class: "fill-track" }, h("span", { class: "fill-bar", style: { "inline-size": `${(layer[at] / most) * 100}%` } })), h("span", { class: "bar-number" }, fixed(layer[at], 1))))),
    note(["The length of the vector of ", quoted(list[at]), ": square all its numbers, add them up, take the root."]), table.element);
}
