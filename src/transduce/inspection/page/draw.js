// What the maps are drawn with: a scale of colours, sharp canvases.

const number = (weight) => (weight >= 0.0005 || weight === 0 ? weight.toFixed(3) : weight.toExponential(0));

let ramp, ink, soft, mark; // of the light or the dark theme; the ramp is one hue from pale to deep, safe for all eyes
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const stops = [0, 1, 2, 3, 4].map((i) => style.getPropertyValue("--r" + i).trim())
    .map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  ramp = Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * 4, low = Math.min(3, Math.floor(place));
    return stops[low].map((value, c) => Math.round(value + (stops[low + 1][c] - value) * (place - low)));
  });
  [ink, soft, mark] = ["--ink", "--soft", "--mark"].map((name) => style.getPropertyValue(name).trim());
}

function paint(canvas, values, rows, columns, largest) { // one dot per value
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0; i < values.length; i++) {
    image.data.set(ramp[Math.min(255, Math.round((values[i] / largest) * 255))], i * 4);
    image.data[i * 4 + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

function prepare(canvas, width, height) { // sharp on any screen, within what browsers allow
  const scale = Math.min(window.devicePixelRatio || 1, 8000 / Math.max(width, height, 1000));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}
