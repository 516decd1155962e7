// The sentence bar above every view but Translate: which sentence the view is about, to be edited in place.
import { h, replace, debounced } from "../lib/element.js";
import { direction, shortened } from "../lib/tokens.js";

export function subjectBar(root, app) {
  const { session } = app;
  const write = debounced((text) => {
    const lines = session.lines.map((line) => line.text), { line, segment } = session;
    if (!session.isTranslator) return session.setText(text);
    if (line?.segments.length > 1) { // only the sentence that is shown changes
      lines[session.at.line] = line.segments.map((one) => (one === segment ? text : one.text) + (one.after ?? "")).join("");
    } else lines[session.at.line] = text;
    session.setText(lines.join("\n"));
  }, 350);
  const input = h("textarea", { rows: "1", "aria-label": "Sentence", spellcheck: "false", dir: "auto",
    oninput: () => write(input.value.replace(/\n/g, " ")),
    onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); write.now(input.value); } } });
  const edit = h("button", { type: "button", onclick: () => app.go("translate") }, "Edit text");
  const output = h("p", { class: "output", tabindex: "0", "aria-live": "polite" });
  const chooser = h("select", { class: "segments", "aria-label": "Sentence of the text", onchange: () => session.select(...chooser.value.split(".").map(Number)) });
  root.append(h("div", { class: "subject" }, input, edit, chooser, output));

  function update() {
    const { pass, segment, line } = session;
    const text = segment?.text ?? line?.text ?? "";
    if (document.activeElement !== input) input.value = text;
    const sentences = session.sentences();
    chooser.hidden = sentences.length < 2;
    if (!chooser.hidden) replace(chooser, sentences.map(({ segment: one, index, number }) => h("option", { value: `${index}.${number}`,
      selected: one === segment }, shortened(one.text.trim(), 80))));
    output.textContent = pass ? pass.output : segment?.partial ?? "";
    output.dir = direction(output.textContent);
    if (!pass && line && !line.error && text) output.append(h("span", { class: "busy", role: "img", "aria-label": "working" }));
  }
  return { update };
}
