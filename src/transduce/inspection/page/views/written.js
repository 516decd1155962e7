// What a model wrote, token by token, whatever its task: the same list for translations and continuations.
import { tokenList } from "../lib/tokens.js";

// [{ …token, position, id, step, kept, given }]: `position` is the row of the recorded steps, `step` the distribution the
// token was chosen from, `kept` whether it was forced, `given` whether it stood in the prompt.
export function writtenTokens(pass) {
  if (pass.subject === "prompt") return continuation(pass);
  const kept = keptTokens(pass);
  return tokenList(pass.produced_pieces, pass.produced_words).map((token) => ({ ...token, position: token.index,
    id: pass.produced_tokens[token.index], step: pass.steps[token.index], kept: token.index < kept, given: false }));
}

// A language model reads its prompt and writes on: token i was chosen from the distribution after token i - 1.
function continuation(pass) {
  const pieces = pass.source_pieces, prompt = promptLength(pass), kept = prompt + keptTokens(pass);
  return tokenList(pieces, pass.source_words).map((token) => ({ ...token, position: token.index - 1,
    id: pass.produced_tokens[token.index - 1], step: pass.steps[token.index - 1] ?? null, kept: token.index >= prompt && token.index < kept, given: token.index < prompt }));
}

const promptLength = (pass) => pass.source_pieces.length - (pass.generated ?? 0);

// How many tokens at the beginning of the output were forced.
export const keptTokens = (pass) => pass.request?.prefix_tokens?.length ?? 0;

// The tokens that force everything before a written token, and another token in its place; a prompt is not forced again.
export function forcedTokens(pass, token, instead) {
  const first = pass.subject === "prompt" ? promptLength(pass) - 1 : 0;
  return [...pass.produced_tokens.slice(first, token.position), instead];
}

// Source words that the corrected alignment links to a written token.
export function linkedWords(pass, token) {
  return token.word === null ? [] : pass.links.filter(([, target]) => target === token.word).map(([source]) => source);
}
