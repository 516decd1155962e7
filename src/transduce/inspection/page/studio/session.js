// What the studio is about: a model, options, a text line by line, and what was recorded of each sentence.
//
// A text is translated line by line, so that while somebody types only the changed line is sent again, and of a
// document only the lines that are seen. Events: "text" (lines changed), "segment" (one changed: detail), "subject" (the
// sentence that the views are about changed), "model", "options", "error".
import { subtitleMarks } from "../lib/subtitles.js";

const LINES_AT_ONCE = 2; // requests in flight: enough to hide latency, few enough to leave the server to others
const AHEAD = 12; // lines that are translated without being seen

export class Session extends EventTarget {
  constructor(api) {
    super();
    this.api = api;
    this.models = [];
    this.model = null;
    this.options = {};
    this.text = "";
    this.lines = [];
    this.at = { line: 0, segment: 0 };
    this.waiting = []; // lines to be translated, the next one first
    this.running = 0;
  }

  emit(name, detail = {}) { this.dispatchEvent(new CustomEvent(name, { detail })); }

  choose(index) {
    this.model = this.models.find((one) => one.index === index) ?? this.models[0];
    this.emit("model");
    this.renew();
  }

  setOptions(options) {
    this.options = options;
    this.emit("options");
    this.renew();
  }

  get isTranslator() { return this.model.task === "translation"; }

  // Lines that stay as they were keep what was recorded of them.
  setText(text) {
    if (text === this.text && this.lines.length) return;
    this.text = text;
    const before = new Map(this.lines.map((line) => [keyOf(line), line]));
    const texts = this.isTranslator ? text.split("\n") : [text], marks = subtitleMarks(texts);
    this.replaceLines(texts.map((one, index) => { // a line that occurs twice is taken over once
      const made = newLine(one, marks[index]), key = keyOf(made), known = before.get(key);
      before.delete(key);
      return known ?? made;
    }));
  }

  // Translate everything again: another model, other options.
  renew() {
    if (this.lines.length) this.replaceLines(this.lines.map((line) => newLine(line.text, line.isMark)));
  }

  replaceLines(lines) {
    for (const line of this.lines) if (!lines.includes(line)) line.abort.abort();
    this.lines = lines;
    const at = Math.max(0, Math.min(this.at.line, lines.length - 1));
    const isText = (line) => Boolean(line?.text.trim()) && !line.isMark;
    if (!isText(lines[at])) this.at = { line: Math.max(0, lines.findIndex(isText)), segment: 0 };
    else this.at = { line: at, segment: Math.min(this.at.segment, Math.max(0, lines[at].segments.length - 1)) };
    this.waiting = lines.filter((line, index) => line.state === "new" && index < AHEAD);
    this.emit("text");
    this.emit("subject");
    this.work();
  }

  // Translate a line next: it came into view, or a view is about it.
  want(line) {
    if (line.state !== "new") return;
    this.waiting = [line, ...this.waiting.filter((one) => one !== line)];
    this.work();
  }

  wantAll() {
    this.waiting = this.lines.filter((line) => line.state === "new");
    this.work();
  }

  get pending() { return this.lines.filter((line) => line.state === "new" && line.text.trim()).length; }

  work() {
    while (this.running < LINES_AT_ONCE && this.waiting.length) {
      const line = this.waiting.shift();
      if (line.state !== "new") continue;
      if (!line.text.trim()) { line.state = "done"; continue; }
      this.running++;
      this.translate(line).finally(() => { this.running--; this.work(); });
    }
  }

  request(text) { return { model: this.model.index, text, ...this.options }; }

  async translate(line) {
    line.state = "running";
    const request = this.request(line.text);
    try {
      await this.api.stream("translate", request, (event) => this.receive(line, event, request), line.abort.signal);
      line.state = "done";
    } catch (error) {
      if (error.name === "AbortError") return;
      this.fail(line, error);
    }
    this.emit("segment", { line });
  }

  receive(line, event, request) {
    if (line.abort.signal.aborted) return;
    if (event.event === "error") throw Object.assign(new Error(event.error.message), event.error);
    if (event.event === "segments") line.segments = event.segments.map((one) => ({ ...one, partial: "", pass: null, undo: [] }));
    const segment = line.segments[event.segment ?? 0];
    if (event.event === "piece") segment.partial += event.text;
    if (event.event === "pass") {
      segment.pass = Object.assign(event.pass, { request: { ...request, text: segment.text, split: undefined } });
      segment.partial = "";
    }
    this.emit("segment", { line, segment });
    if (segment && segment === this.segment && event.event !== "piece") this.emit("subject");
  }

  fail(line, error) {
    line.state = "failed";
    line.error = error.message;
    this.emit("error", { error });
  }

  // ---- the sentence that the views are about

  get line() { return this.lines[this.at.line] ?? null; }
  get segment() { return this.line?.segments[this.at.segment] ?? null; }
  get pass() { return this.segment?.pass ?? null; }

  // Translate again what failed.
  retry() {
    if (this.lines.some((line) => line.error)) this.replaceLines(this.lines.map((line) => (line.error ? newLine(line.text) : line)));
  }

  // What a view says while there is nothing to show.
  get absence() {
    if (this.line?.error) return this.line.error;
    return this.text.trim() ? "Recording …" : "Type a sentence above.";
  }

  select(line, segment = 0) {
    this.at = { line, segment };
    if (this.line) this.want(this.line);
    this.emit("subject");
  }

  // Every sentence so far, in order: [{ line, segment, index, number }]
  sentences() {
    return this.lines.flatMap((line, index) => line.segments.map((segment, number) => ({ line, segment, index, number })));
  }

  // ---- changing the model's mind

  // Keep tokens exactly and let the model write the rest; the former recording can be had back with `undo`.
  async force(segment, tokens) {
    const request = { ...segment.pass.request, prefix_tokens: tokens };
    const pass = await this.api.record(request);
    this.take(segment, pass);
    return pass;
  }

  take(segment, pass) {
    segment.undo.push(segment.pass);
    this.setPass(segment, pass);
  }

  undo(segment) {
    if (segment.undo.length) this.setPass(segment, segment.undo.pop());
  }

  setPass(segment, pass) {
    segment.pass = pass;
    this.emit("segment", { segment });
    if (segment === this.segment) this.emit("subject");
  }
}

// isMark: a number or times of subtitles, which stays as it is.
function newLine(text, isMark = false) {
  return { text, isMark, segments: [], state: isMark ? "done" : "new", error: null, abort: new AbortController() };
}

const keyOf = ({ text, isMark }) => `${isMark}${text}`;
