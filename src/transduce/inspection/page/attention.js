// Shows the attention maps that stand as JSON in #data. Text of the model is set with textContent only.
(async () => {
  const { texts } = JSON.parse($("data").textContent);
  const MEAN = -1; // as a head: the mean of a layer's heads; as a layer: of all layers
  const chosen = { kind: null, layer: MEAN, head: MEAN, row: 0, at: null };
  let data, all, means; // of the chosen text: its content, its weights, its means so far

  // ---- data

  async function weightsOf(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    return data.levels > 255 ? new Uint16Array(buffer) : new Uint8Array(buffer);
  }

  function mapOf(kind, layer, head) { // Float32Array of rows × columns
    const size = kind.rowPieces.length * kind.columnPieces.length, key = `${kind.title} ${layer} ${head}`;
    if (means.has(key)) return means.get(key);
    const layers = layer === MEAN ? [...Array(kind.layers).keys()] : [layer];
    const heads = head === MEAN ? [...Array(kind.heads).keys()] : [head];
    const map = new Float32Array(size), share = 1 / (layers.length * heads.length * data.levels ** 2);
    for (const l of layers) for (const h of heads) {
      const from = kind.offset + (l * kind.heads + h) * size;
      for (let i = 0; i < size; i++) map[i] += all[from + i] ** 2 * share;
    }
    if (head === MEAN) means.set(key, map);
    return map;
  }

  const skips = (kind) => kind.has_sink && $("skip").checked && kind.columnPieces.length > 1;

  function largestOf(map, columns, skip) { // the largest weight, that of the first column left out where requested
    let most = 1e-9;
    for (let i = 0; i < map.length; i++) if (map[i] > most && !(skip && i % columns === 0)) most = map[i];
    return most;
  }

  // ---- all heads

  function thumbnail(kind, layer, head) { // the largest weight of each patch, so that thin lines stay
    const rows = kind.rowPieces.length, columns = kind.columnPieces.length, map = mapOf(kind, layer, head);
    const high = Math.min(rows, 64), wide = Math.min(columns, 64), values = new Float32Array(high * wide);
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
      const i = Math.floor((r * high) / rows) * wide + Math.floor((c * wide) / columns);
      if (map[r * columns + c] > values[i]) values[i] = map[r * columns + c];
    }
    const canvas = document.createElement("canvas");
    paint(canvas, values, high, wide, largestOf(values, wide, skips(kind)));
    return canvas;
  }

  const nameOf = (layer, head) => layer === MEAN ? "mean of all heads"
    : `layer ${layer + 1}, ${head === MEAN ? "mean of its heads" : "head " + (head + 1)}`;

  let seen; // draws the thumbnails that come into view

  function drawGrid() {
    const grid = $("grid"), { kind } = chosen;
    if (seen) seen.disconnect();
    seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        target.replaceChildren(thumbnail(kind, ...target.dataset.place.split(",").map(Number)));
      }
    }, { rootMargin: "200px" });
    grid.replaceChildren();
    grid.style.gridTemplateColumns = `repeat(${kind.heads + 2}, max-content)`;
    const side = Math.floor((grid.parentElement.clientWidth - 40) / (kind.heads + 1)) - 8;
    grid.style.setProperty("--side", `${Math.max(24, Math.min(58, side))}px`);
    for (const title of ["", "mean", ...Array(kind.heads).keys()]) element("span", typeof title === "number" ? title + 1 : title, grid);
    for (let layer = MEAN; layer < kind.layers; layer++) {
      element("span", layer === MEAN ? "all" : layer + 1, grid);
      for (let head = MEAN; head < kind.heads; head++) {
        if (layer === MEAN && head !== MEAN) { element("span", "", grid); continue; }
        const button = element("button", undefined, grid);
        button.type = "button";
        button.dataset.place = `${layer},${head}`;
        button.setAttribute("aria-label", nameOf(layer, head));
        button.title = nameOf(layer, head);
        seen.observe(button);
        button.addEventListener("click", () => choose({ layer, head }));
      }
    }
  }

  function walk(event) { // arrow keys in the grid
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const within = (value, most) => Math.max(MEAN, Math.min(most - 1, value));
    let layer = within(chosen.layer + step[0], chosen.kind.layers), head = within(chosen.head + step[1], chosen.kind.heads);
    if (layer === MEAN && step[1]) layer = 0; // sideways from the mean of all: into the first layer
    choose({ layer, head: layer === MEAN ? MEAN : head });
    $("grid").querySelector("[aria-pressed=true]").focus();
  }

  // ---- the map

  const heat = document.createElement("canvas");
  let map, largest, layout;

  function drawMatrix() {
    const { rowPieces, columnPieces } = chosen.kind, rows = rowPieces.length, columns = columnPieces.length;
    const context = $("matrix").getContext("2d");
    context.font = "12px system-ui, sans-serif";
    const width = (pieces) => pieces.length > 80 ? 8 : 10 + Math.max(...pieces.map((piece) => context.measureText(short(piece)).width));
    const left = Math.ceil(width(rowPieces)), top = Math.ceil(width(columnPieces));
    const room = $("matrix").parentElement.clientWidth - left - 2;
    const cell = Math.max(Math.max(rows, columns) > 80 ? 3 : 14, Math.min(30, Math.floor(room / columns)));
    layout = { left, top, cell, rows, columns };
    paint(heat, map, rows, columns, largest);
    showMatrix(null, null);
  }

  function showMatrix(row, column) {
    const { left, top, cell, rows, columns } = layout, { rowPieces, columnPieces } = chosen.kind;
    const context = prepare($("matrix"), left + columns * cell + 1, top + rows * cell + 1);
    context.imageSmoothingEnabled = false;
    context.drawImage(heat, left, top, columns * cell, rows * cell);
    context.strokeStyle = soft;
    context.lineWidth = 0.5;
    context.strokeRect(left, top, columns * cell, rows * cell);
    context.textBaseline = "middle";
    const write = (piece, lit, x, y, turn) => {
      context.save();
      context.translate(x, y);
      context.rotate(turn);
      context.font = (lit ? "bold " : "") + "12px system-ui, sans-serif";
      context.fillStyle = lit ? mark : ink;
      context.fillText(short(piece), 0, 0);
      context.restore();
    };
    context.textAlign = "right";
    if (rows <= 80) rowPieces.forEach((piece, r) => write(piece, r === row, left - 5, top + (r + 0.5) * cell, 0));
    context.textAlign = "left";
    if (columns <= 80) columnPieces.forEach((piece, c) => write(piece, c === column, left + (c + 0.5) * cell, top - 5, -Math.PI / 2));
    if (row === null) return;
    context.strokeStyle = mark;
    context.lineWidth = 1;
    context.strokeRect(left, top + row * cell, columns * cell, cell);
    context.strokeRect(left + column * cell, top, cell, rows * cell);
  }

  function pointAt(event) {
    const { left, top, cell, rows, columns } = layout;
    const column = Math.floor((event.offsetX - left) / cell), row = Math.floor((event.offsetY - top) / cell);
    if (row < 0 || column < 0 || row >= rows || column >= columns) return leave();
    showMatrix(row, column);
    const say = $("readout");
    say.replaceChildren();
    element("bdi", visible(chosen.kind.rowPieces[row]), say);
    say.append(" attends to ");
    element("bdi", visible(chosen.kind.columnPieces[column]), say);
    say.append(": ");
    element("b", number(map[row * columns + column]), say);
  }

  function leave() {
    showMatrix(null, null);
    $("readout").textContent = "Point at a cell to see its weight.";
  }

  // ---- lines

  function drawColumns() {
    for (const [id, pieces] of [["rows", chosen.kind.rowPieces], ["columns", chosen.kind.columnPieces]]) {
      const list = $(id);
      list.replaceChildren();
      pieces.forEach((piece, i) => {
        const item = element("li", undefined, list);
        element("bdi", visible(piece), item);
        item.title = visible(piece);
        item.tabIndex = i ? -1 : 0;
        const show = () => { chosen.at = [id, i]; drawLines(); };
        item.addEventListener("pointerenter", show);
        item.addEventListener("focus", show);
        item.addEventListener("keydown", (event) => {
          const next = { ArrowUp: item.previousSibling, ArrowDown: item.nextSibling }[event.key];
          if (next) { event.preventDefault(); item.tabIndex = -1; next.tabIndex = 0; next.focus(); }
        });
      });
    }
  }

  function drawLines() {
    const rows = chosen.kind.rowPieces.length, columns = chosen.kind.columnPieces.length, { at } = chosen;
    const width = $("lines").parentElement.clientWidth - $("rows").offsetWidth - $("columns").offsetWidth;
    const context = prepare($("lines"), width, 20 * Math.max(rows, columns));
    const least = ($("threshold").value / 100) * largest, beside = [$("rows").children, $("columns").children];
    $("below").textContent = number(least);
    for (const items of beside) for (const item of items) { item.classList.remove("at"); item.style.background = ""; }
    const accent = ramp[190].join(" ");
    context.lineWidth = 1.6;
    context.strokeStyle = `rgb(${accent})`;
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
      const weight = map[r * columns + c], ours = !at || (at[0] === "rows" ? at[1] === r : at[1] === c);
      if (!ours || weight === 0 || weight < least || (c === 0 && skips(chosen.kind))) continue;
      context.globalAlpha = Math.min(1, weight / largest);
      context.beginPath();
      context.moveTo(0, r * 20 + 10);
      context.bezierCurveTo(width / 3, r * 20 + 10, (width * 2) / 3, c * 20 + 10, width, c * 20 + 10);
      context.stroke();
      if (at) (at[0] === "rows" ? beside[1][c] : beside[0][r]).style.background = `rgb(${accent} / ${(weight / largest) * 0.6})`;
    }
    if (at) $(at[0]).children[at[1]].classList.add("at");
  }

  // ---- tokens of a text: what the chosen one attends to, and what comes after it

  const isText = () => data.reads || (chosen.kind && chosen.kind.rows === chosen.kind.columns);

  function drawTokens() {
    const box = $("tokens"), pieces = data.pieces.source;
    $("reading").hidden = !isText();
    $("next").hidden = !data.reads;
    $("generated").hidden = !data.generated;
    box.replaceChildren();
    if (!isText()) return;
    pieces.forEach((piece, i) => {
      const token = element("button", undefined, box), text = piece.replace(/^\u2581+/, "").replace(/\n/g, "↵");
      token.type = "button";
      element("bdi", visible(text) === "∅" ? visible(piece) : visible(text), token);
      if (/^[\u2581\n]/.test(piece)) token.classList.add("word");
      if (i >= pieces.length - data.generated) token.classList.add("generated");
      token.addEventListener("click", () => chooseRow(i));
      if (piece.includes("\n")) element("br", undefined, box);
    });
    box.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -pieces.length, End: pieces.length }[event.key];
      if (!step) return;
      event.preventDefault();
      chooseRow(Math.max(0, Math.min(pieces.length - 1, chosen.row + step)));
      tokens()[chosen.row].focus();
    };
  }

  const tokens = () => $("tokens").querySelectorAll("button");

  function chooseRow(row) {
    chosen.row = row;
    shadeTokens();
    drawAttended();
    drawNext();
  }

  function showToken() { // scroll the box alone, not the page
    const box = $("tokens"), token = tokens()[chosen.row];
    if (token) box.scrollTop = token.offsetTop - box.offsetTop - box.clientHeight / 2;
  }

  function shadeTokens() {
    if (!isText()) return;
    const { kind, row } = chosen, columns = data.pieces.source.length;
    const weights = kind ? map.subarray(row * columns, (row + 1) * columns) : null;
    const most = weights ? largestOf(weights, columns, skips(kind)) : 1;
    tokens().forEach((token, i) => {
      const share = weights ? Math.min(1, weights[i] / most) : 0;
      token.style.background = share > 0.02 ? `rgb(${ramp[150].join(" ")} / ${share * 0.75})` : "";
      token.title = weights ? number(weights[i]) : "";
      token.setAttribute("aria-pressed", i === row);
      token.tabIndex = i === row ? 0 : -1;
    });
  }

  function attendedBy(kind, row) { // of each token: the mean weight of all heads, the largest, and the head that has it
    const columns = kind.columnPieces.length, size = kind.rowPieces.length * columns, heads = kind.layers * kind.heads;
    const found = kind.columnPieces.map((piece, position) => ({ piece, position, mean: 0, most: 0, head: 0 }));
    for (let h = 0; h < heads; h++) for (const one of found) {
      const weight = (all[kind.offset + h * size + row * columns + one.position] / data.levels) ** 2;
      one.mean += weight / heads;
      if (weight > one.most) Object.assign(one, { most: weight, head: h });
    }
    return found.filter((one) => one.most > 0);
  }

  function drawAttended() {
    const table = $("attended"), { kind, row } = chosen;
    table.replaceChildren();
    if (!isText() || !kind) return;
    const best = (key) => (a, b) => b[key] - a[key], found = attendedBy(kind, row);
    const kept = new Set([...found.sort(best("most")).slice(0, 6), ...found.sort(best("mean")).slice(0, 6)]);
    const top = element("tr", undefined, element("thead", undefined, table)), body = element("tbody", undefined, table);
    for (const title of ["attends to", "mean of all heads", "strongest head", ""]) element("th", title, top).scope = "col";
    for (const one of found) {
      if (!kept.has(one)) continue;
      const line = element("tr", undefined, body), name = element("th", undefined, line);
      name.scope = "row";
      element("bdi", visible(one.piece), name);
      element("small", ` ${one.position + 1}`, name);
      for (const share of [one.mean, one.most]) { const cell = element("td", number(share), line); cell.className = "number"; bar(share, cell); }
      const layer = Math.floor(one.head / kind.heads), head = one.head % kind.heads;
      const button = element("button", nameOf(layer, head), element("td", undefined, line));
      button.type = "button";
      button.addEventListener("click", () => choose({ layer, head }));
    }
  }

  function drawNext() {
    if (!data.reads) return;
    const step = data.steps[chosen.row], table = $("candidates");
    $("after").textContent = visible(step.piece);
    $("entropy").textContent = `Entropy ${step.entropy.toFixed(2)} bits.`
      + (step.rank ? ` The token that followed has rank ${step.rank}.` : "");
    table.replaceChildren();
    const top = element("tr", undefined, element("thead", undefined, table)), body = element("tbody", undefined, table);
    for (const title of ["token", "probability", "logit"]) element("th", title, top).scope = "col";
    for (const [piece, probability, taken, logit] of step.top) {
      const line = element("tr", undefined, body), name = element("th", undefined, line);
      if (taken) line.className = "taken";
      name.scope = "row";
      element("bdi", visible(piece), name);
      const cell = element("td", number(probability), line);
      cell.className = "number";
      bar(probability, cell);
      element("td", logit.toFixed(2), line).className = "number";
    }
  }

  // ---- steps and table

  let shown; // draws the steps that come into view

  function drawSteps() {
    const list = $("step-list");
    $("steps").hidden = !data.steps.length;
    $("about-steps").textContent = data.about_steps;
    list.replaceChildren();
    if (shown) shown.disconnect();
    shown = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) { shown.unobserve(target); drawStep(target); }
    }, { rootMargin: "400px" });
    data.steps.forEach((step, t) => {
      const item = element("li", undefined, list);
      item.dataset.step = t;
      item.style.minHeight = `${2.2 + 1.3 * step.top.length}em`;
      shown.observe(item);
    });
  }

  function drawStep(item) {
    const step = data.steps[item.dataset.step], list = document.createElement("ol");
    element("b", step.position + 1 + ". ", item);
    element("bdi", visible(step.piece), item);
    const chance = step.probability === null ? "" : `  ${number(step.probability)}` + (step.rank > 1 ? `, rank ${step.rank}` : "");
    element("small", data.reads && chance ? `  next${chance}` : chance, item);
    item.append(list);
    for (const [piece, probability, taken] of step.top) {
      const row = element("li", undefined, list);
      if (taken) row.className = "taken";
      element("bdi", visible(piece), row);
      bar(probability, element("div", undefined, row));
      element("span", number(probability), row);
    }
  }

  const bar = (share, parent) => { element("i", undefined, parent).style.width = share * 100 + "%"; };

  function drawTable() { // every number of a small map, the five largest of each row of a large one
    const { rowPieces, columnPieces } = chosen.kind, columns = columnPieces.length, table = $("table");
    table.replaceChildren();
    if (!$("details").open) return;
    element("caption", `${chosen.kind.title}, ${nameOf(chosen.layer, chosen.head)}`, table);
    const whole = map.length <= 2500, head = element("tr", undefined, element("thead", undefined, table));
    const body = element("tbody", undefined, table);
    const title = (piece, parent, scope) => { const cell = element("th", undefined, parent); cell.scope = scope; element("bdi", visible(piece), cell); };
    title("row", head, "col");
    for (const piece of whole ? columnPieces : ["1st", "2nd", "3rd", "4th", "5th"]) title(piece, head, "col");
    rowPieces.forEach((piece, r) => {
      const line = element("tr", undefined, body), weights = Array.from(map.subarray(r * columns, (r + 1) * columns));
      title(piece, line, "row");
      if (whole) return weights.forEach((weight) => element("td", number(weight), line));
      const best = weights.map((weight, c) => [weight, c]).sort((a, b) => b[0] - a[0]).slice(0, 5);
      for (const [weight, c] of best) { const cell = element("td", undefined, line); element("bdi", visible(columnPieces[c]), cell); cell.append(" " + number(weight)); }
    });
  }

  // ---- choosing

  function choose(change) {
    const renewed = change.kind && change.kind !== chosen.kind;
    Object.assign(chosen, change, { at: null });
    if (renewed) { Object.assign(chosen, { layer: MEAN, head: MEAN }); drawKind(); }
    const { kind, layer, head } = chosen;
    if (!kind) {
      for (const place of document.querySelectorAll(".chosen")) place.textContent = "this model has no attention";
      return chooseRow(chosen.row);
    }
    map = mapOf(kind, layer, head);
    largest = largestOf(map, kind.columnPieces.length, skips(kind));
    for (const button of $("kinds").children) button.setAttribute("aria-pressed", button.textContent === kind.title);
    for (const button of $("grid").querySelectorAll("button")) {
      const here = button.dataset.place === `${layer},${head}`;
      button.setAttribute("aria-pressed", here);
      button.tabIndex = here ? 0 : -1;
    }
    $("layer").value = layer;
    $("head").value = head;
    $("head").disabled = layer === MEAN;
    for (const place of document.querySelectorAll(".chosen")) place.textContent = nameOf(layer, head);
    $("largest").textContent = number(largest);
    drawMatrix();
    leave();
    drawLines();
    drawTable();
    chooseRow(chosen.row);
  }

  function drawKind() {
    drawTokens();
    $("attention").classList.toggle("without", !chosen.kind);
    if (!chosen.kind) return;
    const { kind } = chosen, options = (select, count) => {
      select.replaceChildren();
      for (let i = MEAN; i < count; i++) element("option", i === MEAN ? "mean" : i + 1, select).value = i;
    };
    options($("layer"), kind.layers);
    options($("head"), kind.heads);
    $("about").textContent = kind.about + (data.least ? ` Weights below ${data.least} are left out.` : "");
    $("sink").hidden = !kind.has_sink;
    $("model").hidden = kind.layers * kind.heads === 1;
    drawGrid();
    drawColumns();
  }

  function drawAll() {
    const { layer, head } = chosen;
    readTheme();
    paint($("legend"), ramp.map((_, i) => i), 1, 256, 255);
    drawKind();
    choose({ layer, head });
  }

  async function open(text) {
    data = text;
    means = new Map();
    for (const id of ["source", "translation"]) $(id).textContent = data[id];
    $("output").setAttribute("aria-label", data.output);
    $("output").hidden = !data.translation;
    $("kinds").replaceChildren();
    let offset = 0;
    for (const kind of data.kinds) {
      Object.assign(kind, { rowPieces: data.pieces[kind.rows], columnPieces: data.pieces[kind.columns], offset });
      offset += kind.layers * kind.heads * kind.rowPieces.length * kind.columnPieces.length;
      const button = element("button", kind.title, $("kinds"));
      button.type = "button";
      button.addEventListener("click", () => choose({ kind }));
    }
    Object.assign(chosen, { kind: data.kinds[data.kinds.length - 1], layer: MEAN, head: MEAN, row: data.reads ? data.pieces.source.length - 1 : 0 });
    all = await weightsOf(data.weights);
    $("main").hidden = false;
    drawSteps();
    drawAll();
    showToken();
  }

  texts.forEach((text, i) => { element("option", text.source.replace(/\s+/g, " ").slice(0, 100), $("texts")).value = i; });
  $("choice").hidden = texts.length === 1;
  $("texts").addEventListener("change", (event) => open(texts[+event.target.value]));
  $("skip").addEventListener("change", drawAll);
  $("grid").addEventListener("keydown", walk);
  $("layer").addEventListener("change", (event) => choose({ layer: +event.target.value, head: +event.target.value === MEAN ? MEAN : chosen.head }));
  $("head").addEventListener("change", (event) => choose({ head: +event.target.value }));
  $("threshold").addEventListener("input", drawLines);
  $("matrix").addEventListener("pointermove", pointAt);
  $("matrix").addEventListener("pointerdown", pointAt);
  $("matrix").addEventListener("pointerleave", leave);
  $("lines").parentElement.addEventListener("pointerleave", () => { chosen.at = null; drawLines(); });
  $("details").addEventListener("toggle", drawTable);
  window.addEventListener("resize", () => choose({}));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  await open(texts[0]);
})().catch(() => { $("failed").hidden = false; });
