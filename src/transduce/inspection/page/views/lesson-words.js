// The tour, first part: from letters to vectors that know their place.
import { h, replace } from "../lib/element.js";
import { dataTable, behind } from "../lib/table.js";
import { fixed } from "../lib/numbers.js";
import { direction, tokenList, tokenName, tokenText, wordList } from "../lib/tokens.js";
import { around, bars, byWords, lead, note, smallMap, tryThis, wordRow } from "./lesson-parts.js";

const MOST_CARDS = 80; // tokens of a long text that are written as cards
const MOST_MAP_ROWS = 24; // rows of a map, those around the chosen token

export const quoted = (token) => h("i", {}, tokenText(token));

export function tokensLesson(root, { pass, tokens }) {
  const list = tokenList(pass.source_pieces, pass.source_words), cut = wordList(list).find((word) => word.to - word.from > 1);
  const last = list.at(-1), shown = list.slice(0, MOST_CARDS), isUnknown = list.some((token) => token.special === "unknown");
  const card = (token, i) => h("div", { class: `token-card-small${token.starts ? "" : " joined"}` }, h("span", { class: "piece" }, tokenText(token)), tokens ? h("span", { class: "number" }, String(tokens[i])) : null);
  replace(root, lead("In a few short steps you will see everything that happens to your sentence inside the model. Each step has one idea; all numbers are this model’s own.", "A computer can only calculate with numbers. So the sentence is cut into **tokens**: whole words, or pieces of words. The model has a fixed list of all tokens it knows; a token’s **number** is its place in that list."),
    h("div", { class: "token-cards", dir: direction(pass.source) }, byWords(shown, shown.map(card))),
    shown.length < list.length ? note(`The first ${shown.length} of ${list.length} tokens.`) : null,
    cut ? note(["A word that is rare for this model is cut into pieces: ", h("b", {}, h("bdi", {}, cut.text)), " became ", list.slice(cut.from, cut.to).map((token, i) => [i ? " + " : "", quoted(token)]), ". With pieces, a short list is enough for very many words."])
      : note("Every word here is one token. Most models cut a rare word into pieces, so that a short list is enough for very many words."),
    isUnknown ? note([h("span", { class: "special" }, "unknown"), " stands for what is not in the list. The model does not see what was written there."]) : null,
    list.filter((token) => !token.special).every((token) => Array.from(token.text).length === 1) && list.length > 3 ? note("The tokens of this model are single letters. Where the tour says **word**, read **letter**.") : null,
    last.special ? note(["The label ", h("span", { class: "special" }, last.text), " is a token, too: it says that the sentence is over."]) : null,
    tokens ? tryThis("Change the sentence above, and see which words share a number.") : note("The numbers of a text encoder’s tokens are not shown here."));
}

export function embeddingsLesson(root, { pass, embeddings }, live) {
  const { pieces, dim } = embeddings.source, { shape: [rows, columns], data } = embeddings.source.vectors, list = tokenList(pieces, pass.source_words);
  const at = Math.min(live?.focus.row ?? 1, rows - 1), own = data.subarray(at * columns, (at + 1) * columns), { from, to } = around(at, rows, MOST_MAP_ROWS);
  const table = behind(() => dataTable({ caption: `First ${columns} numbers of each vector`, columns: ["token", ...Array.from({ length: columns }, (_, i) => String(i + 1))],
    rows: list.map((token, r) => [tokenName(token), ...Array.from(data.subarray(r * columns, (r + 1) * columns), (value) => fixed(value, 2))]) }));
  replace(root, lead(`A token’s number says nothing about its meaning: token ${embeddings.source.tokens[at]} is not “a bit more” than token ${embeddings.source.tokens[at] - 1}. So the model keeps, for every token, a list of **${dim} numbers**. They were learned from many examples; step by step they became useful (that is called training). Such a list is called a **vector**, and looking it up is the **embedding**.`),
    wordRow(list, at, live ? (index) => live.focusOn({ row: index }) : null, { label: "Token whose numbers are written out" }),
    h("p", { class: "numbers-line" }, quoted(list[at]), " = [ ", Array.from(own.subarray(0, 6), (value) => fixed(value, 2)).join(",  "), ",  … ", dim - 6, " more ]"),
    smallMap({ values: data.subarray(from * columns, to * columns), rows: to - from, columns, names: list.slice(from, to), label: "Vectors of the tokens, one row each; the numbers are in the table" }),
    note(`One row per token${to - from < rows ? ` (the ${to - from} around the chosen one)` : ""}, one column per number${dim > columns ? ` (the first ${columns} of ${dim})` : ""}. Blue is above zero, orange below. No single number has a name; together they say how the word is used. Two equal tokens have equal rows.`),
    table.element);
}

export function positionsLesson(root, { pass, embeddings }, live) {
  const list = tokenList(embeddings.source.pieces, pass.source_words);
  const why = "The next steps compute with all tokens **at once**, in no order. Without help, _dog bites man_ and _man bites dog_ would be the same three words.";
  if (!embeddings.positions) {
    replace(root, lead(why, "This model adds nothing to the vectors. It tells positions apart inside attention instead: how far two tokens are from each other changes how well they fit."));
    return;
  }
  const { shape: [rows, columns], data } = embeddings.positions, similar = embeddings.similarity.data, at = Math.min(live?.focus.row ?? 1, rows - 1);
  const row = Array.from(similar.subarray(at * rows, (at + 1) * rows)), most = Math.max(...row), { from, to } = around(at, rows, MOST_MAP_ROWS), near = list.slice(from, to);
  replace(root, lead(why, "So every **position** in the sentence has its own pattern of numbers, the **position encoding**. It is **added** to the vector of the token that stands there. Now a word that occurs twice is no longer the same twice."),
    h("div", { class: "lesson-pair" },
      h("figure", {}, smallMap({ values: data.subarray(from * columns, to * columns), rows: to - from, columns, names: near, label: "Position encodings, one row per position" }), h("figcaption", {}, "The pattern of each position: waves, quick on the left, slow to the right. Blue is above zero, orange below.", near.length < rows ? ` The ${near.length} positions around the chosen one.` : "")),
      h("figure", {}, wordRow(list, at, live ? (index) => live.focusOn({ row: index }) : null, { label: "Position to compare with" }), bars(near.map((token) => ({ name: tokenText(token), share: Math.max(0, row[token.index]), said: fixed(row[token.index], 1), mark: token.index === at ? "taken" : "" })), { most }),
        h("figcaption", {}, "How alike are two positions? Multiply their patterns number by number and add everything up. This is the ", h("b", {}, "dot product"), ", large for patterns that are alike. Close positions get more than distant ones: the model can tell near from far."))),
    live ? tryThis("Choose another token. The longest bar is always its own position; its neighbours come next.") : null);
}
