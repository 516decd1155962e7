// Every request of the studio. Nothing else in the page speaks with the server.
import { fromShares16 } from "../lib/arrays.js";

const BASE = "/studio/api/";
const KEY = "studio-key"; // of sessionStorage: forgotten when the tab is closed

// What went wrong, in the server's words.
export class ApiError extends Error {
  constructor(status, message, parameter = null) {
    super(message);
    this.status = status;
    this.parameter = parameter;
  }

  // Whether the same request may succeed later: the server is gone or busy.
  get isPassing() { return [0, 429, 502, 503, 504].includes(this.status); }
}

async function failure(response) {
  let error = {};
  try { ({ error } = await response.json()); } catch { /* not from this server */ }
  const wait = response.headers.get("Retry-After");
  const busy = response.status === 429 || response.status === 503;
  const message = error?.message ?? `the server answered ${response.status}`;
  return new ApiError(response.status, busy && wait ? `${message} (try again in ${wait} s)` : message, error?.parameter);
}

export class Api {
  // askKey(): Promise of a key, or of null if the user gives none
  constructor(askKey) {
    this.askKey = askKey;
    this.asking = null; // one prompt at a time, however many requests need it
  }

  headers() {
    const key = sessionStorage.getItem(KEY);
    return key ? { "X-API-Key": key } : {};
  }

  async send(path, { body, signal } = {}, root = BASE) {
    const options = { method: body === undefined ? "GET" : "POST", headers: this.headers(), signal, cache: "no-store" };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    let response;
    try { response = await fetch(root + path, options); } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "the server does not answer; is it still running?");
    }
    if (response.status === 401 && (await this.renewKey())) return this.send(path, { body, signal }, root);
    if (!response.ok) throw await failure(response);
    return response;
  }

  async renewKey() {
    this.asking ??= this.askKey(sessionStorage.getItem(KEY) !== null);
    const key = await this.asking;
    this.asking = null;
    if (key) sessionStorage.setItem(KEY, key);
    return Boolean(key);
  }

  async get(path, signal) { return (await this.send(path, { signal })).json(); }
  async post(path, body, signal) { return (await this.send(path, { body, signal })).json(); }

  models() { return this.get("models"); }
  runs() { return this.get("runs"); }
  run(index) { return this.get(`runs/${index}`); }
  demo() { return this.get("demo"); }
  headSummary(model, texts) { return this.post("head-summary", texts ? { model, texts } : { model }); }

  // Record one sentence. The request is kept in the pass, so that one that left the server's cache can be repeated.
  async record(request, signal) {
    const pass = await this.post("passes", request, signal);
    return Object.assign(pass, { request });
  }

  // A request about a recorded pass; once repeated with a new recording if the pass is gone.
  async ofPass(pass, act) {
    try { return await act(pass.id); } catch (error) {
      if (error.status !== 404 || !pass.request) throw error;
      pass.id = (await this.record(pass.request)).id;
      return act(pass.id);
    }
  }

  askPass(pass, what, body = {}, signal) { return this.ofPass(pass, (id) => this.post(`passes/${id}/${what}`, body, signal)); }

  // A layer's attention -> { shape: [heads, rows, columns], data: Float32Array, shares16: ArrayBuffer }
  attention(pass, kind, layer, signal) {
    return this.ofPass(pass, async (id) => {
      const response = await this.send(`passes/${id}/attention/${kind}/${layer}`, { signal });
      const shares16 = await response.arrayBuffer();
      return { shape: response.headers.get("X-Shape").split(",").map(Number), data: fromShares16(shares16), shares16 };
    });
  }

  // Server-sent events of a POST: EventSource can neither post nor send a key.
  async stream(path, body, onEvent, signal) {
    const response = await this.send(path, { body, signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (rest + value).split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        if (data) onEvent(JSON.parse(data));
      }
    }
  }

  async template() { return (await (await this.send("saved", {}, "/studio/")).json()).template; }
}
