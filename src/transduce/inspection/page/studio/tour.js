// Not built yet: see the panel interface at the top of app.js.
import { h } from "../lib/element.js";

export function tourPanel(root) {
  root.append(h("p", { class: "empty" }, "This view is not built yet."));
  return {};
}
