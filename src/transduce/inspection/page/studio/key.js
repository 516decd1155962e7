// Asks for the server's key, which is kept until the tab is closed and sent as a header, never in an address.
import { h } from "../lib/element.js";

export function askKey(wasWrong) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Key", required: true });
    const form = h("form", { method: "dialog" }, h("h2", {}, "This server needs a key"),
      h("p", { class: "hint" }, wasWrong ? "That key was not accepted. Its owner knows it." : "It was given when the server was started; its owner knows it."),
      h("div", { class: "controls" }, input, h("button", { class: "primary" }, "Continue")));
    const dialog = h("dialog", { onclose: () => { dialog.remove(); resolve(input.value.trim() || null); } }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}
