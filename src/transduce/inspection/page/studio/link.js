// The state of the studio in the hash of its address: a link restores what it shows.
//
//   #/attention?model=0&text=A+dog.&options={"search":{"beam_size":8}}&at=0.1&force=[4,17]&view={…}

const MOST_CHARACTERS = 6000; // characters of a link; mail and chat programs cut longer ones

export function readLink(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const given = new URLSearchParams(query);
  const [line, segment] = (given.get("at") ?? "0.0").split(".").map((one) => Number.parseInt(one, 10) || 0);
  return {
    tab: path || null,
    model: given.has("model") ? Number.parseInt(given.get("model"), 10) : null,
    text: given.get("text"),
    options: parsed(given.get("options"), {}),
    at: { line: Math.max(0, line), segment: Math.max(0, segment) },
    force: tokensOf(parsed(given.get("force"), null)),
    view: parsed(given.get("view"), null),
  };
}

// Whatever stands in an address, only plain JSON objects and lists come out.
function parsed(text, otherwise) {
  if (!text) return otherwise;
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" ? value : otherwise;
  } catch { return otherwise; }
}

const tokensOf = (value) => (Array.isArray(value) && value.length && value.every(Number.isInteger) ? value : null);

export function writeLink({ tab, model, text, options, at, force, view }) {
  const parts = new URLSearchParams();
  if (model) parts.set("model", model);
  if (text) parts.set("text", text);
  if (options && Object.keys(options).length) parts.set("options", JSON.stringify(options));
  if (at.line || at.segment) parts.set("at", `${at.line}.${at.segment}`);
  if (force) parts.set("force", JSON.stringify(force));
  if (view && Object.keys(view).length) parts.set("view", JSON.stringify(view));
  const query = parts.toString(), whole = `#/${tab}${query ? `?${query}` : ""}`;
  if (whole.length <= MOST_CHARACTERS) return { hash: whole, complete: true };
  return { hash: `#/${tab}${model ? `?model=${model}` : ""}`, complete: false };
}
