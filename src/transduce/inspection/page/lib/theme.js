// The switch between dark, light and what the system has.
import { h } from "./element.js";
import { setTheme } from "./draw.js";

const MODES = { auto: "Auto", light: "Light", dark: "Dark" };

export function themeSwitch(mode) {
  const buttons = Object.entries(MODES).map(([name, title]) => h("button", { type: "button", "aria-pressed": name === mode, "data-mode": name,
    onclick: () => {
      setTheme(name);
      for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.mode === name);
    } }, title));
  return h("div", { class: "segmented theme", role: "group", "aria-label": "Colour theme" }, buttons);
}
