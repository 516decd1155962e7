// Starts a saved page: one view with its data, which stands as JSON in the page.
import { h } from "./lib/element.js";
import { startTheme } from "./lib/draw.js";
import { themeSwitch } from "./lib/theme.js";
import { VIEWS } from "./views/catalog.js";

function openSaved() {
  const { title, view, data, state } = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main"), root = h("div", {});
  const mode = startTheme();
  if (title) document.title = title;
  main.append(h("header", { class: "saved-head" }, h("h1", {}, title ?? "transduce"), themeSwitch(mode)), root);
  const shown = VIEWS[view](root, data, null);
  if (state) shown.restore(state);
}

openSaved();
