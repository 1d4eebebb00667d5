// Renders the OpenAPI document of this broker. Everything that comes from it becomes text, never markup.
"use strict";

const VERBS = ["get", "post", "put", "patch", "delete"];

function made(name, text, ...inside) {
  const element = document.createElement(name);
  if (text !== null) element.textContent = text;
  element.append(...inside);
  return element;
}

// One schema in a few words: `object` with its fields is shown as a table of its own.
function kind(schema, doc) {
  if (!schema) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((each) => kind(each, doc)).join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items, doc)}`;
  return schema.type || "anything";
}

function resolved(schema, doc) {
  return schema && schema.$ref ? doc.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function fields(schema, doc) {
  const whole = resolved(schema, doc);
  if (!whole || !whole.properties) return made("p", kind(schema, doc));
  const table = made("table", null);
  for (const [name, each] of Object.entries(whole.properties)) {
    const needed = (whole.required || []).includes(name) ? "needed" : "";
    table.append(made("tr", null, made("td", null, made("code", name)), made("td", kind(each, doc)),
      made("td", needed), made("td", each.description || "")));
  }
  return table;
}

function command(path, verb, operation) {
  const url = `${location.origin}${path}`;
  const body = operation.requestBody ? ` -H 'Content-Type: application/json' -d '{}'` : "";
  return verb === "get" ? `curl '${url}'` : `curl -X ${verb.toUpperCase()} '${url}'${body}`;
}

function shown(path, verb, operation, doc) {
  const name = made("span", verb.toUpperCase());
  name.className = `verb ${verb}`;
  const details = made("details", null,
    made("summary", null, name, made("code", path), ` ${operation.summary || ""}`));
  const inside = made("div", null, made("p", operation.description || ""));
  if ((operation.parameters || []).length) {
    const table = made("table", null);
    for (const each of operation.parameters) {
      table.append(made("tr", null, made("td", null, made("code", each.name)), made("td", each.in),
        made("td", kind(each.schema, doc)), made("td", each.description || (each.schema || {}).description || "")));
    }
    inside.append(made("h3", "Parameters"), table);
  }
  const body = operation.requestBody && operation.requestBody.content["application/json"];
  if (body) inside.append(made("h3", "Body"), fields(body.schema, doc));
  for (const [status, each] of Object.entries(operation.responses)) {
    if (Number(status) >= 300) continue;
    inside.append(made("h3", `Answer ${status}`));
    const json = (each.content || {})["application/json"];
    if (json) inside.append(fields(json.schema, doc));
  }
  inside.append(made("pre", command(path, verb, operation)));
  details.append(inside);
  details.dataset.words = `${verb} ${path} ${operation.summary} ${operation.description}`.toLowerCase();
  return details;
}

function render(doc) {
  document.getElementById("title").textContent = `${doc.info.title} ${doc.info.version}: HTTP API`;
  document.getElementById("about").textContent = doc.info.description || "";
  const groups = new Map();
  for (const [path, verbs] of Object.entries(doc.paths)) {
    for (const verb of VERBS) {
      const operation = verbs[verb];
      if (!operation) continue;
      const tag = (operation.tags || ["other"])[0];
      if (!groups.has(tag)) groups.set(tag, made("section", null, made("h2", tag)));
      groups.get(tag).append(shown(path, verb, operation, doc));
    }
  }
  document.getElementById("operations").replaceChildren(...groups.values());
}

function filter(text) {
  for (const section of document.querySelectorAll("section")) {
    let any = false;
    for (const each of section.querySelectorAll("details")) {
      each.hidden = !each.dataset.words.includes(text.toLowerCase());
      any = any || !each.hidden;
    }
    section.hidden = !any;
  }
}

document.getElementById("filter").addEventListener("input", (event) => filter(event.target.value));
fetch("openapi.json")
  .then((answer) => answer.json())
  .then(render)
  .catch((fault) => {
    document.getElementById("operations").textContent = `The document can't be read: ${fault}`;
  });
