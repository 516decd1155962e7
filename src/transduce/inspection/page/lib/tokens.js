// Tokens as people see them: a word start is a gap, a piece that continues a word is marked, special tokens are labels.
import { h } from "./element.js";

const SPECIAL = {
  "<s>": "start", "</s>": "end", "<pad>": "padding", "<unk>": "unknown", "<mask>": "mask", "<bos>": "start", "<eos>": "end",
  "[CLS]": "CLS", "[SEP]": "SEP", "[MASK]": "mask", "[PAD]": "padding", "[UNK]": "unknown", "<|endoftext|>": "end", "<cls>": "CLS", "<sep>": "SEP",
};
// What cannot be seen, or would turn what stands beside it, is spelled out.
const INVISIBLE = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\p{Surrogate}/gu;
const CONTINUES = /^(##|@@)|@@$/;
const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const LETTER = /\p{Letter}/gu;

const spelled = (c) => (c === "\n" ? "↵" : `‹${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);

export function specialName(piece) {
  if (Object.hasOwn(SPECIAL, piece)) return SPECIAL[piece];
  const tag = /^(?:>>|<2|__)([\w-]{2,12})(?:<<|>|__)$/.exec(piece);
  return tag ? tag[1] : null;
}

// The text of a piece without marks of its tokenizer.
export function pieceText(piece) {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(piece); // part of a character that the vocabulary lacks
  if (byte) return `‹${byte[1]}›`;
  const text = piece.replace(/^\u2581+/, "").replace(CONTINUES, "").replace(/[\u2581 ]/g, "␣").replace(INVISIBLE, spelled);
  return text || (piece ? "␣" : "∅");
}

// Tokens of a text. `words` has the word of each piece (or null); without it, only marks of the tokenizer tell words.
export function tokenList(pieces, words = null) {
  const marked = pieces.some((piece) => piece.startsWith("\u2581"));
  let before = null;
  return pieces.map((piece, index) => {
    const named = specialName(piece), special = named === "end" && index === 0 && pieces.length > 1 ? "start" : named; // some models begin with the end token
    const word = words ? words[index] ?? null : null;
    let starts = true;
    if (index && special === null) {
      if (word !== null) starts = word !== before;
      else starts = marked ? piece.startsWith("\u2581") : !CONTINUES.test(piece);
    }
    before = special === null ? word : null;
    return { index, piece, word, special, starts: starts || special !== null, text: special ?? pieceText(piece) };
  });
}

// Consecutive tokens of one word: { text, from, to, special, word }; `to` is the index after the last. `text` is what the
// tokens are of, if it is known: its words are shown as they are written, whatever their pieces look like.
export function wordList(tokens, text = null) {
  const written = text?.trim().split(/\s+/u) ?? [], last = tokens.reduce((most, token) => Math.max(most, token.word ?? -1), -1);
  const groups = grouped(tokens);
  if (written.length === last + 1) for (const group of groups) if (group.word !== null && !groups.some((one) => one !== group && one.word === group.word)) group.text = written[group.word];
  return groups;
}

function grouped(tokens) {
  const found = [];
  for (const token of tokens) {
    const last = found[found.length - 1];
    if (last && !token.starts && !last.special) {
      last.text += token.text;
      last.to = token.index + 1;
    } else found.push({ text: token.text, from: token.index, to: token.index + 1, special: token.special, word: token.word, starts: true });
  }
  return found;
}

// A token inside an element: isolated from the direction of what is beside it.
export function tokenText(token) {
  return token.special ? h("span", { class: "special" }, token.text) : h("bdi", { dir: "auto" }, token.text);
}

// A name for labels, tables and canvases; a piece that continues a word begins with a middle dot.
export const tokenName = (token) => (token.starts || token.special ? token.text : `·${token.text}`);

// The name of a language by its tag, "de" -> "German"; what is no tag stays as it is.
export function languageName(tag) {
  try { return new Intl.DisplayNames("en", { type: "language" }).of(tag); } catch { return tag; }
}

export function shortened(text, most = 14) {
  const characters = Array.from(text);
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : text;
}

// The direction of a text by most of its letters: the first letter alone decides badly ("iPhone" in Arabic text).
export function direction(text) {
  const letters = text.match(LETTER) ?? [];
  return letters.filter((letter) => RTL.test(letter)).length * 2 > letters.length ? "rtl" : "ltr";
}
