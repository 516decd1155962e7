// The table behind a picture, and other tables.
import { h, replace } from "./element.js";

const MOST_ROWS = 400;

// rows: arrays of cells, each a text, a number as text, or an element; the first is the name of its row.
export function dataTable({ caption = null, columns, rows }) {
  const shown = rows.slice(0, MOST_ROWS);
  return h("table", { class: "data" },
    caption ? h("caption", {}, caption) : null,
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, shown.map(([first, ...others]) =>
      h("tr", {}, h("th", { scope: "row" }, first), others.map((cell) => h("td", {}, cell))))),
    rows.length > MOST_ROWS ? h("tfoot", {}, h("tr", {}, h("td", { colspan: columns.length }, `${rows.length - MOST_ROWS} further rows`))) : null);
}

// "As a table": a picture's numbers for a screen reader or for copying, made when it is opened.
export function behind(build, title = "As a table") {
  const place = h("div", { class: "scroll tall", role: "region", "aria-label": title, tabindex: "0" });
  const details = h("details", { class: "behind" }, h("summary", {}, title), place);
  const renew = () => { if (details.open) replace(place, build()); };
  details.addEventListener("toggle", renew);
  return { element: details, renew };
}
