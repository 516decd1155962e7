// One step of the guided tour, in the studio and saved.
import { h, replace } from "../lib/element.js";
import { decodeArray, isArray } from "../lib/arrays.js";
import { onTheme } from "../lib/draw.js";
import { tokensLesson, embeddingsLesson, positionsLesson } from "./lesson-words.js";
import { askLesson, arithmeticLesson, headsLesson, masksLesson, residualLesson } from "./lesson-attention.js";
import { writingLesson, temperatureLesson, forcingLesson, beamLesson, cacheLesson, predictionLesson, recapLesson } from "./lesson-decoding.js";

export const LESSONS = {
  tokens: tokensLesson, embeddings: embeddingsLesson, positions: positionsLesson, ask: askLesson, arithmetic: arithmeticLesson, heads: headsLesson, masks: masksLesson,
  residual: residualLesson, writing: writingLesson, temperature: temperatureLesson, forcing: forcingLesson, beam: beamLesson, cache: cacheLesson, prediction: predictionLesson, recap: recapLesson,
};

// Arrays of numbers anywhere inside become { shape, data }.
async function decoded(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.length && typeof value[0] === "object" ? Promise.all(value.map(decoded)) : value;
  if (isArray(value)) return decodeArray(value);
  return Object.fromEntries(await Promise.all(Object.entries(value).map(async ([name, one]) => [name, await decoded(one)])));
}

// data: { lesson, title, focus, ...what the lesson is about }. live: { focus, focusOn(change), keep(change), open(tab), example(text) }
export function lessonView(root, data, live = null) {
  let shown = null, isGone = false;
  const place = h("div", { class: "lesson-body" });
  replace(root, h("article", { class: "view lesson" }, h("h2", {}, data.title), place));
  const draw = async () => {
    const ready = await decoded(data);
    shown?.destroy?.();
    if (!isGone) shown = LESSONS[data.lesson](place, ready, live) ?? null;
  };
  const stop = onTheme(draw), ready = draw();
  return { ready, state: () => ({}), restore() {}, destroy() { isGone = true; stop(); shown?.destroy?.(); } };
}
