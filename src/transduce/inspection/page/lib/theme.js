// The switch between dark, light and what the system has.
import { h, replace } from "./element.js";
import { setTheme } from "./draw.js";

const MODES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

// One button that goes round: small enough for a phone.
export function themeSwitch(mode) {
  let now = mode;
  const button = h("button", { type: "button", class: "theme", onclick: () => {
    now = MODES[(MODES.indexOf(now) + 1) % MODES.length];
    setTheme(now);
    draw();
  } });
  const draw = () => {
    replace(button, h("span", { "aria-hidden": "true" }, SIGNS[now]));
    button.setAttribute("aria-label", `Colour theme: ${now}`);
    button.title = `Colour theme: ${now}`;
  };
  draw();
  return button;
}
