// Saves a view as one file that needs no server: the template of the server, filled with the view's data.

// JSON for a script element: nothing in it can end the element.
function embedded(value) {
  return JSON.stringify(value).replace(/[&<>\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function fileName(title) {
  const plain = title.normalize("NFC").replace(/[^\p{Letter}\p{Mark}\p{Number}]+/gu, "-").slice(0, 60).replace(/^-+|-+$/g, "");
  return `${plain || "view"}.html`;
}

export async function saveView(api, content) {
  const [before, after] = (await api.template()).split("{{data}}");
  const address = URL.createObjectURL(new Blob([before, embedded(content), after], { type: "text/html" }));
  const link = document.createElement("a"), name = fileName(content.title);
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  return name;
}
