// Elements whose text is only ever text: nothing here, and nothing that is built on it, parses markup.

const ADDRESS = /^(#|\/|\.\/|blob:|https:\/\/)/; // where a link may lead; never javascript: or data:

// h("button", { class: "quiet", onclick: act, "aria-label": "Undo" }, "Undo"); null children are left out.
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

// The same for the elements of an SVG picture.
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) if (value !== null && value !== undefined) set(made, name, value);
  append(made, children);
  return made;
}

function set(made, name, value) {
  if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
  else if (name === "style") for (const [key, one] of Object.entries(value)) made.style.setProperty(key, one);
  else if (name === "class") made.setAttribute("class", value);
  else if (["value", "checked", "disabled", "hidden", "open", "selected", "indeterminate"].includes(name)) made[name] = value;
  else if (["href", "src"].includes(name) && !ADDRESS.test(value)) throw new Error(`not an address: ${value}`);
  else if (value === true || value === false) name.startsWith("aria-") ? made.setAttribute(name, value) : made.toggleAttribute(name, value);
  else made.setAttribute(name, value);
}

export function append(parent, children) {
  for (const child of [children].flat(Infinity)) if (child !== null && child !== undefined && child !== false) parent.append(child);
  return parent;
}

export function replace(parent, ...children) {
  parent.replaceChildren();
  return append(parent, children);
}

// A text for a screen reader alone.
export function unseen(text) {
  return h("span", { class: "unseen" }, text);
}

// Calls `act` once the calls have stopped for `wait` milliseconds; `now()` does not wait, `cancel()` forgets.
export function debounced(act, wait) {
  let timer = null;
  const later = (...values) => { clearTimeout(timer); timer = setTimeout(() => act(...values), wait); };
  later.now = (...values) => { clearTimeout(timer); act(...values); };
  later.cancel = () => clearTimeout(timer);
  return later;
}

// Calls `act` at most once per frame, with the last values.
export function perFrame(act) {
  let waiting = null;
  return (...values) => {
    if (waiting === null) requestAnimationFrame(() => { const given = waiting; waiting = null; act(...given); });
    waiting = values;
  };
}

let identities = 0;
export const identity = (stem) => `${stem}-${++identities}`;

// Calls `act(element)` once for each observed element, when it comes near the viewport; for lists too long to draw.
export function whenSeen(act, margin = "300px") {
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) { observer.unobserve(target); act(target); }
  }, { rootMargin: margin });
  return observer;
}
