"use strict";

// Everything that comes from the server is shown through textContent: no text can become markup.
function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function headers() {
  const key = document.getElementById("key").value;
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function resolve(document_, schema) {
  if (!schema || !schema.$ref) return schema || {};
  return document_.components.schemas[schema.$ref.split("/").pop()] || {};
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const several = schema.anyOf || schema.oneOf;
  if (several) return several.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items || {})}`;
  return [].concat(schema.type || "any").join(" or ");
}

function parameters(document_, body) {
  const schema = resolve(document_, body.schema);
  const required = new Set(schema.required || []);
  const table = element("table", "", element("tr", "", element("th", "Parameter"), element("th", "Type"), element("th", "Meaning")));
  for (const [name, inner] of Object.entries(schema.properties || {})) {
    const title = required.has(name) ? `${name} (required)` : name;
    table.append(element("tr", "", element("td", title), element("td", typeOf(inner)), element("td", inner.description || "")));
  }
  return table;
}

function curl(method, path, body, secured) {
  const key = secured ? " -H 'Authorization: Bearer KEY'" : "";
  if (!body) return `curl${method === "get" ? "" : ` -X ${method.toUpperCase()}`}${key} ${location.origin}${path}`;
  const data = JSON.stringify(body.example || {}).replaceAll("'", "\\u0027");
  return `curl${key} -H 'Content-Type: application/json' -d '${data}' ${location.origin}${path}`;
}

function route(document_, path, method, operation) {
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  const summary = element("summary", "", element("span", method.toUpperCase()), ` ${path} – ${operation.summary}`);
  summary.firstChild.className = "method";
  const details = element("details", "", summary);
  if (operation.description) details.append(element("p", operation.description));
  details.append(element("pre", curl(method, path, content, (operation.security || []).length > 0)));
  if (content) details.append(parameters(document_, content));
  const statuses = Object.entries(operation.responses).map(([status, response]) => element("li", `${status}: ${response.description}`));
  details.append(element("ul", "", ...statuses));
  return details;
}

async function showRoutes() {
  const state = document.getElementById("state");
  const response = await fetch("/openapi.json", { headers: headers() });
  if (!response.ok) {
    state.textContent = "The list of routes needs the server's key: type it above.";
    return;
  }
  const document_ = await response.json();
  const routes = document.getElementById("routes");
  routes.replaceChildren();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) routes.append(route(document_, path, method, operation));
  }
  state.textContent = "";
}

async function translate(event) {
  event.preventDefault();
  const answer = document.getElementById("answer");
  const request = { text: document.getElementById("text").value };
  const model = document.getElementById("model").value;
  const beam = document.getElementById("beam").value;
  if (model) request.model = model;
  if (beam) request.beam_size = Number(beam);
  answer.textContent = "…";
  try {
    const response = await fetch("/v1/translate", {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers() },
      body: JSON.stringify(request),
    });
    const found = await response.json();
    answer.textContent = response.ok ? found.translations[0].text : found.error.message;
  } catch (error) {
    answer.textContent = `The server does not answer (${error.message}).`;
  }
}

document.getElementById("try").addEventListener("submit", translate);
document.getElementById("key").addEventListener("change", showRoutes);
showRoutes();
