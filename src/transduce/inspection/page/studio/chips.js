// A list of short texts, each with a button that removes it.
import { h, replace } from "../lib/element.js";

// pair: texts are "source = target". change(values) is called with the new list.
export function chips({ title, hint, values, pair = false, change }) {
  const input = h("input", { type: "text", placeholder: hint, "aria-label": `${title}: add`, size: "14", autocomplete: "off" });
  const list = h("ul", {}, values.map((value, index) => h("li", {}, h("bdi", {}, value),
    h("button", { type: "button", "aria-label": `Remove ${value}`, onclick: () => change(values.filter((_, at) => at !== index)) }, "×"))));
  const problem = h("small", { role: "alert" });
  const add = (event) => {
    event.preventDefault();
    const text = input.value.trim(), [source, target, more] = text.split("=").map((one) => one.trim());
    if (!text) return;
    if (pair && (!source || !target || more !== undefined)) return replace(problem, "write: source = translation");
    change([...values.filter((one) => one !== text), pair ? `${source} = ${target}` : text]);
  };
  return h("form", { class: "chips", onsubmit: add }, h("span", { class: "title" }, title), list, input, h("button", { class: "quiet", "aria-label": `${title}: add this` }, "Add"), problem);
}
