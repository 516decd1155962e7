// Examples that texts about the Transformer use, and whether the loaded model can show them.
import { pieceText } from "../lib/tokens.js";

const ANIMAL = "The animal didn't cross the street because it was too tired";

export const SEEDS = [
  { task: "translation", text: ANIMAL, short: "The animal … too tired" },
  { task: "translation", text: ANIMAL.replace("tired", "wide"), short: "… too wide" },
  { task: "language_modeling", text: "The capital of France is", short: "The capital of France is", next: ["paris"] },
  { task: "language_modeling", text: "The snack-seeking, scruffy dog ran to the", short: "The snack-seeking, scruffy dog …" },
  { task: "language_modeling", text: "def scale(values, factor):\n    return [v * factor for v in", short: "def scale(values, factor): …", next: ["values"] },
  { task: "text_encoding", text: "The capital of France is <mask>.", short: "The capital of France is …", next: ["paris"] },
];

const NEEDS = { translation: "a translation model", language_modeling: "a language model", text_encoding: "a text encoder" };

// What can be said of each example with this model; of the one that is shown, what the model made of it.
export function seedsFor(model, pass) {
  return SEEDS.map(({ task, text, next }) => {
    if (task !== model.task) return { text, act: false, said: `This needs ${NEEDS[task]}; the loaded one is ${NEEDS[model.task]}.` };
    if (task === "translation" && model.source_languages?.length && !model.source_languages.includes("en")) return { text, act: false, said: "The loaded model does not read English." };
    if (pass.source !== text || !next) return { text, act: true, said: task === "translation" ? "Choose it to see what this model makes of “it”." : "Choose it to see what this model expects next. A small model need not know." };
    const { top } = pass.steps[task === "language_modeling" ? pass.steps.length - 1 - (pass.generated ?? 0) : 0] ?? { top: [] };
    const place = top.findIndex(({ piece }) => next.includes(pieceText(piece).toLowerCase()));
    return { text, act: true, said: place < 0 ? `This model does not know it: “${next[0]}” is not among its ${top.length} likeliest tokens.` : `This model has “${next[0]}” in place ${place + 1}.` };
  });
}
