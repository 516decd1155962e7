// Shows the runs that stand as JSON in #data. Text of runs, samples and settings is set with textContent only.

function readable(text) { // spaces, joiners and marks stay; what steers or turns the text is spelled out
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]|\p{Surrogate}/gu, spelled);
}

function tableOf(names, rows, mark = () => "") { // the first column names its row
  const table = document.createElement("table");
  const head = names.length ? element("tr", undefined, element("thead", undefined, table)) : null;
  for (const name of names) element("th", readable(name), head).scope = "col";
  const body = element("tbody", undefined, table);
  for (const row of rows) {
    const line = element("tr", undefined, body);
    line.className = mark(row);
    row.forEach((cell, i) => {
      const text = cell === null ? "–" : readable(cell), made = element(i ? "td" : "th", undefined, line);
      if (i === 0) made.scope = "row";
      if (i && /^[-+\d.,e]+$/.test(text)) made.className = "number";
      element("bdi", text, made);
    });
  }
  return table;
}

(() => {
  const data = JSON.parse($("data").textContent), { runs } = data, two = runs.length > 1;
  let across = "update", reach = 1;
  const charts = [];

  // ---- the page that the charts stand on

  const longest = Math.max(0, ...runs.flatMap((run) => run.clocks.hours[1].slice(-1)));
  const unit = longest >= 2 ? { name: "hours", short: "h", each: 1 } : { name: "minutes", short: "min", each: 60 };
  const AXES = { update: "updates", tokens: "target tokens", hours: `${unit.name} of training` };

  function between(updates, values, update) { // on the straight line from point to point, beginning at nothing
    let low = 0, high = updates.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (updates[middle] < update) low = middle + 1; else high = middle;
    }
    if (low === updates.length) return values[low - 1];
    const [u, v] = low ? [updates[low - 1], values[low - 1]] : [0, 0];
    return updates[low] === u ? values[low] : v + ((values[low] - v) * (update - u)) / (updates[low] - u);
  }

  const page = {
    placesOf(run, updates) {
      const each = across === "hours" ? unit.each : 1;
      return across === "update" ? updates : updates.map((update) => each * between(...run.clocks[across], update));
    },
    reach: () => reach,
    axis(place, update) {
      const where = `at update ${update.toLocaleString("en")}`;
      if (across === "update") return where;
      return `${where}, ${across === "hours" ? written(place) + " " + unit.short : tickLabel(place) + " tokens"}`;
    },
    judged: (name) => !["loss", "learning rate", "gradient norm", "speed", "memory"].includes(name),
    point(place) { for (const chart of charts) chart.show(place); },
  };

  function drawAll() {
    const curves = runs.flatMap((run) => Object.values(run.curves).map((curve) => page.placesOf(run, curve[0].slice(-1))[0]));
    reach = Math.max(1e-9, ...curves);
    page.point(null);
    for (const chart of charts) chart.draw();
  }

  function showCurves() {
    $("curves").hidden = !data.charts.length;
    $("nothing").hidden = data.charts.length > 0;
    for (const [name, title] of Object.entries(AXES)) {
      if (name !== "update" && !runs.every((run) => run.clocks[name][0].length)) continue;
      element("option", title, $("across")).value = name;
    }
    $("across").addEventListener("change", () => { across = $("across").value; drawAll(); });
    $("charts").classList.toggle("two", two);
    for (const spec of data.charts) charts.push(new Chart(spec, runs, page, $("charts")));
    drawAll();
  }

  // ---- samples

  function compared(translation, reference, parent) { // words that are not in the longest common subsequence are marked
    const a = translation.split(" "), b = reference.split(" ");
    if (a.length * b.length > 1e6) { element("bdi", readable(translation), parent); return; }
    const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
    const text = element("bdi", undefined, parent);
    for (let i = 0, j = 0; i < a.length; i++) {
      while (j < b.length && a[i] !== b[j] && lengths[i][j] === lengths[i][j + 1]) j++;
      const common = j < b.length && a[i] === b[j];
      if (common) j++;
      if (i) text.append(" ");
      if (common) text.append(readable(a[i])); else element("u", readable(a[i]), text);
    }
  }

  function samplesAt(update) { // of each run, those of its last validation until then; one card for each pair
    const cards = new Map();
    runs.forEach((run, index) => {
      const moment = run.moments.filter((each) => each.update <= update).pop();
      for (const [source, reference, translation] of moment ? moment.samples : []) {
        const key = JSON.stringify([source, reference]);
        if (!cards.has(key)) cards.set(key, { source, reference, answers: [] });
        cards.get(key).answers.push({ index, label: run.label, at: moment.update, translation });
      }
    });
    return [...cards.values()];
  }

  function showSamples(update) {
    $("moment-at").textContent = update.toLocaleString("en");
    $("moment").setAttribute("aria-valuetext", `update ${update.toLocaleString("en")}`);
    $("samples").replaceChildren(...samplesAt(update).map(({ source, reference, answers }) => {
      const card = document.createElement("dl");
      element("dt", "source", card);
      element("bdi", readable(source), element("dd", undefined, card));
      element("dt", "reference", card);
      element("bdi", readable(reference), element("dd", undefined, card));
      for (const { index, label, at, translation } of answers) {
        const name = element("dt", undefined, card), text = element("dd", undefined, card);
        if (two) element("i", undefined, name).className = `key run${index}`;
        element("bdi", two ? label : "translation", name);
        if (at !== update) name.append(` (${at.toLocaleString("en")})`);
        compared(translation, reference, text);
        if (translation === reference) element("span", "✓ as the reference", text).className = "same";
      }
      return card;
    }));
  }

  function startSamples() {
    const moments = [...new Set(runs.flatMap((run) => run.moments.map((each) => each.update)))].sort((a, b) => a - b);
    $("sample-section").hidden = !moments.length;
    if (!moments.length) return;
    $("moment").max = moments.length - 1;
    $("moment").value = moments.length - 1;
    $("moment").disabled = moments.length === 1;
    $("moment").addEventListener("input", () => showSamples(moments[$("moment").value]));
    showSamples(moments[moments.length - 1]);
  }

  // ---- tables

  function titled(run, index, parent) {
    const part = element("div", undefined, parent);
    if (two) {
      const title = element("h3", undefined, part);
      element("i", undefined, title).className = `key run${index}`;
      element("bdi", readable(run.label), title);
    }
    return part;
  }

  function scrolled(table, label, parent) {
    const scroll = element("div", undefined, parent);
    scroll.className = "scroll tall";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", label);
    scroll.append(table);
  }

  function showLists() {
    $("check-section").hidden = !runs.some((run) => run.checks.rows.length);
    runs.forEach((run, index) => {
      const checks = titled(run, index, $("checks")), notes = titled(run, index, $("notes"));
      if (run.checks.rows.length) scrolled(tableOf(run.checks.names, run.checks.rows), `Validations of ${run.label}`, checks);
      else element("p", "None yet.", checks);
      const { rows, earlier } = run.notes;
      if (rows.length) scrolled(tableOf(["update", "what", ""], rows), `Events of ${run.label}`, notes);
      else element("p", "None: no update was skipped and nothing else happened.", notes).className = "hint";
      if (earlier) element("p", `and ${earlier.toLocaleString("en")} before these`, notes).className = "hint";
    });
  }

  const differs = (row) => (two && row[1] !== row[2] ? "differs" : "");

  function showGroups(parent, groups, only, missing) {
    parent.classList.toggle("wide", two && parent !== $("summary"));
    parent.replaceChildren();
    for (const { title, rows } of groups) {
      const shown = only ? rows.filter(differs) : rows;
      if (!shown.length) continue;
      const part = element("div", undefined, parent);
      if (title) element("h3", readable(title), part);
      part.append(tableOf(two ? ["", ...runs.map((run) => run.label)] : [], shown, parent === $("summary") ? undefined : differs));
    }
    if (!parent.firstChild) element("p", groups.length ? "No setting differs." : missing, parent).className = "hint";
  }

  function showSettings() {
    showGroups($("summary"), data.summary, false, "");
    $("differing").hidden = !two;
    const show = () => showGroups($("recipe"), data.recipe, $("only").checked, "The folder holds no recipe.toml.");
    $("only").addEventListener("change", show);
    show();
    showGroups($("data-report"), data.data, false, "The folder holds no report on its data.");
  }

  // ---- all

  const name = runs.map((run) => readable(run.label)).join(" against ");
  document.title = `${name}: training`;
  $("title").textContent = two ? "Two training runs" : `Training run: ${name}`;
  runs.forEach((run, index) => {
    if (!two) return;
    const item = element("li", undefined, $("legend"));
    element("i", undefined, item).className = `key run${index}`;
    element("bdi", readable(run.label), item);
  });
  $("main").hidden = false;
  showSettings();
  showCurves();
  startSamples();
  showLists();
})();
