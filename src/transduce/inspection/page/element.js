"use strict";
// What every page is made of: elements whose text is never markup, and names that can be read.

const $ = (id) => document.getElementById(id);

const spelled = (c) => "‹" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "›";

function visible(piece) { // what cannot be seen, or would turn what stands beside it, is spelled out
  return piece === "" ? "∅" : piece.replace(/ /g, "␣").replace(
    /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\p{Surrogate}/gu, spelled);
}

function short(piece, most = 14) {
  const characters = Array.from(visible(piece));
  return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : characters.join("");
}

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
