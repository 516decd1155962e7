// The card of one token: how likely it was, what else could have come, and which source words it belongs to.
import { h, replace, unseen } from "../lib/element.js";
import { percent, fixed } from "../lib/numbers.js";
import { pieceText, specialName, tokenText } from "../lib/tokens.js";
import { roving } from "../lib/keys.js";
import { linkedWords } from "./written.js";

const WIDTH = 320; // of the card, in CSS pixels; as in views.css

const named = (piece) => ({ text: specialName(piece) ?? pieceText(piece), special: specialName(piece) });

function choice(option, { taken, act }) {
  const bar = h("i", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("width", `${Math.max(0.5, option.probability * 100)}%`);
  const inside = [h("span", { class: "name" }, tokenText(named(option.piece))), h("span", { class: "track" }, bar),
    h("span", { class: "share" }, percent(option.probability))];
  if (!act || taken) return h("li", { class: taken ? "taken" : "" }, h("div", { class: "choice" }, inside, taken ? unseen("chosen") : null));
  return h("li", {}, h("button", { type: "button", class: "choice", onclick: () => act(option), title: "Continue from here with this token" }, inside));
}

// The distribution that a token was chosen from, as a list; `act(option)` forces another one.
export function choiceList(step, id, act = null) {
  const options = [...step.top];
  if (id !== undefined && id !== null && !options.some((one) => one.token === id)) options.push({ token: id, piece: step.piece ?? "", probability: step.probability });
  return h("ol", { class: "choices" }, options.map((option) => choice(option, { taken: option.token === id, act })));
}

function sourceList(token, pass, words, raw) {
  const linked = linkedWords(pass, token).map((word) => words.find((one) => one.word === word)).filter(Boolean);
  const place = h("div", { class: "raw" });
  const parts = [
    h("dt", {}, "Aligned with"), h("dd", {}, linked.length ? linked.map((word) => [h("span", { class: "linked" }, tokenText(word)), " "]) : h("span", { class: "hint" }, "no source word")),
    h("dt", {}, "Attends to"), h("dd", {}, place),
  ];
  const show = (row) => {
    if (!row) return replace(place, h("span", { class: "hint" }, "no cross-attention"));
    const best = row.map((weight, index) => [weight, index]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    replace(place, best.map(([weight, index]) => h("span", { class: "weight" }, tokenText(named(pass.source_pieces[index])), " ", percent(weight), " ")));
  };
  if (pass.attention.cross) raw(token.position).then(show, () => show(null));
  return h("dl", {}, pass.attention.cross || pass.links.length ? parts : []);
}

// A card that opens at a token. `raw(position)`: Promise of the mean cross-attention of all heads, by source piece.
export function tokenCard() {
  const card = h("div", { class: "token-card", role: "dialog", "aria-label": "Alternatives", hidden: true });
  let owner = null, pinned = false, closing = null;

  function open(button, { token, pass, words, raw, act }) {
    clearTimeout(closing);
    if (owner === button && !card.hidden) return;
    close();
    owner = button;
    const { step } = token;
    const chosen = { ...step, piece: token.piece };
    replace(card,
      h("p", { class: "head" }, h("b", {}, tokenText(token)), h("span", {}, percent(step.probability)),
        h("small", {}, `rank ${step.rank} · log-probability ${fixed(Math.log(step.probability))}`)),
      choiceList(chosen, token.id, act && !token.given ? (option) => { close(); act(option); } : null),
      act && !token.given ? h("p", { class: "hint" }, "Choose another token, and the model continues from there.") : null,
      sourceList(token, pass, words, raw));
    roving(card, () => [...card.querySelectorAll("button.choice")]);
    card.hidden = false;
    button.setAttribute("aria-expanded", "true");
    place(button);
  }

  function place(button) { // below the token, within the window; above it where there is no room below
    const box = button.getBoundingClientRect(), within = card.offsetParent.getBoundingClientRect();
    const room = document.documentElement.clientWidth - WIDTH - 8;
    card.style.setProperty("left", `${Math.max(8, Math.min(box.left, room)) - within.left}px`);
    const below = box.bottom + 6 + card.offsetHeight < innerHeight || box.top < card.offsetHeight + 12;
    card.style.setProperty("top", `${below ? box.bottom - within.top + 4 : box.top - within.top - card.offsetHeight - 4}px`);
  }

  function close() {
    clearTimeout(closing);
    if (owner) owner.removeAttribute("aria-expanded");
    owner = null;
    pinned = false;
    card.hidden = true;
  }

  const closeSoon = () => { clearTimeout(closing); if (!pinned) closing = setTimeout(() => card.contains(document.activeElement) || close(), 220); };
  card.addEventListener("pointerenter", () => clearTimeout(closing));
  card.addEventListener("pointerleave", closeSoon);
  card.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    const back = owner;
    close();
    back?.focus();
  });
  const outside = (event) => { if (!card.hidden && !card.contains(event.target) && !owner?.contains(event.target)) close(); };
  document.addEventListener("pointerdown", outside);
  return { element: card, open, close, closeSoon, pin: () => { pinned = true; }, get owner() { return owner; },
    enter: () => card.querySelector("button.choice")?.focus(), destroy: () => document.removeEventListener("pointerdown", outside) };
}
