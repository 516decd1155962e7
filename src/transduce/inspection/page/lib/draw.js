// What pictures are drawn with: the theme's colours, colour scales, sharp canvases.

const listeners = new Set();
let theme = null;

// The colours of the theme in use: { ink, soft, edge, paper, accent, mark, sequential: 256 × [r, g, b], diverging, unsure }.
export function colours() {
  return (theme ??= readTheme());
}

function readTheme() {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const style = getComputedStyle(probe), read = (name) => { // resolves light-dark(), which a property's text does not
    probe.style.setProperty("color", `var(--${name})`);
    return style.color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const css = (name) => `rgb(${read(name).join(" ")})`;
  const scale = (names) => between(names.map(read));
  const found = {
    sequential: scale(["seq-0", "seq-1", "seq-2", "seq-3", "seq-4", "seq-5"]),
    diverging: scale(["div-0", "div-1", "div-2", "div-3", "div-4", "div-5", "div-6"]),
    unsure: scale(["unsure-0", "unsure-1", "unsure-2", "unsure-3"]),
  };
  for (const name of ["ink", "soft", "edge", "paper", "panel", "raised", "accent", "mark"]) found[name] = css(name);
  probe.remove();
  return found;
}

function between(stops) { // 256 colours
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(place));
    return stops[low].map((value, c) => Math.round(value + (stops[low + 1][c] - value) * (place - low)));
  });
}

export const sequential = (share) => rgb(colours().sequential, share);
export const diverging = (value) => rgb(colours().diverging, (value + 1) / 2); // -1 … 1
export const unsure = (probability) => rgb(colours().unsure, 1 - probability);

function rgb(scale, share) {
  return `rgb(${scale[Math.max(0, Math.min(255, Math.round(share * 255)))].join(" ")})`;
}

// How much larger than usual the page is set: 1, and more on very wide screens; pictures in pixels grow with it.
export const enlargement = () => Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

// Ink that can be read on a colour of a scale.
export function inkOn(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).map((value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b; // black and white are equally far at 0.18: a contrast of 4.6
  return luminance > 0.35 ? "#16181d" : luminance > 0.18 ? "#000000" : "#ffffff";
}

// Calls `act` when dark and light change; returns a function that stops it.
export function onTheme(act) {
  listeners.add(act);
  return () => listeners.delete(act);
}

function renewTheme() {
  theme = null;
  for (const act of listeners) act();
}

// mode: "light", "dark" or "auto" (as the system has it)
export function setTheme(mode) {
  if (mode === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = mode;
  try { localStorage.setItem("theme", mode); } catch { /* a sandboxed frame has no storage */ }
  renewTheme();
}

export function startTheme() {
  let mode = "auto";
  try { mode = localStorage.getItem("theme") ?? "auto"; } catch { /* as above */ }
  if (mode !== "auto") document.documentElement.dataset.theme = mode;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renewTheme);
  return mode;
}

// Size a canvas so that it is sharp on any screen, within what browsers allow; returns its context, in CSS pixels.
export function sharp(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 8000 / Math.max(width, height, 1000));
  const wide = Math.max(1, Math.round(width * scale)), high = Math.max(1, Math.round(height * scale));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.setProperty("width", `${width}px`);
    canvas.style.setProperty("height", `${height}px`);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// One dot per value, 0 … largest, in a colour scale of 256.
export function paintDots(canvas, values, rows, columns, largest, scale = colours().sequential) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows), { data } = image;
  const factor = 255 / largest;
  for (let i = 0, at = 0; i < values.length; i++, at += 4) {
    const [r, g, b] = scale[Math.max(0, Math.min(255, Math.round(values[i] * factor)))];
    data[at] = r;
    data[at + 1] = g;
    data[at + 2] = b;
    data[at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
