"use strict";
// Renders /openapi.json; text always goes in as text, never as markup.

const element = (name, ...children) => {
  const node = document.createElement(name);
  node.append(...children);
  return node;
};
const shown = (value) => element("pre", typeof value === "string" ? value : JSON.stringify(value, null, 1));
const nameOf = (reference) => reference.split("/").pop();

function typeOf(schema) {
  if (schema.$ref) {
    const link = element("a", nameOf(schema.$ref));
    link.href = "#schema-" + nameOf(schema.$ref);
    return link;
  }
  const options = schema.anyOf || schema.oneOf;
  if (Array.isArray(schema.type))
    return element("span", ...schema.type.flatMap((type, i) => (i ? [" or ", typeOf({ ...schema, type })] : [typeOf({ ...schema, type })])));
  if (options) return element("span", ...options.flatMap((option, i) => (i ? [" or ", typeOf(option)] : [typeOf(option)])));
  if (schema.enum) return element("span", schema.enum.join(", "));
  if (schema.const !== undefined) return element("span", String(schema.const));
  if (schema.type === "array" && schema.items) return element("span", "list of ", typeOf(schema.items));
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const range = low === undefined && high === undefined ? "" : ` ${low ?? ""}..${high ?? ""}`;
  return element("span", (schema.type || "anything") + range);
}

function fieldTable(rows) {
  const table = element("table");
  for (const [name, schema, required] of rows) {
    const spelled = element("td", element("code", name), required ? " *" : "");
    table.append(element("tr", spelled, element("td", typeOf(schema)), element("td", schema.description || "")));
  }
  return table;
}

function exampleAt(address) {
  const link = element("a", "Example");
  link.href = address;
  return element("p", link);
}

function examplesOf(content) {
  if (content.example !== undefined) return [shown(content.example)];
  const inline = Object.values(content.examples || {}).flatMap((e) => [element("p", e.summary), shown(e.value)]);
  return [...inline, ...(content["x-examples"] || []).map(exampleAt)];
}

// The component that a reference names, or the part itself.
const resolved = (part, kind) => (part.$ref ? kind[nameOf(part.$ref)] : part);

function operationDetails(path, method, operation, components) {
  const verb = element("span", method.toUpperCase());
  verb.className = "method";
  const details = element("details", element("summary", verb, element("code", path), "  ", operation.summary || ""));
  if (operation["x-scope"]) details.append(element("p", "Scope of the key: ", element("code", operation["x-scope"])));
  const parameters = (operation.parameters || []).map((p) => resolved(p, components.parameters));
  if (parameters.length) {
    details.append(element("p", "Parameters (* is required)"));
    details.append(fieldTable(parameters.map((p) => [p.name, { description: p.description, ...p.schema }, p.required])));
  }
  for (const content of Object.values(operation.requestBody?.content || {})) {
    details.append(element("p", "Body: ", typeOf(content.schema)), ...examplesOf(content));
  }
  for (const [status, response] of Object.entries(operation.responses).map(([s, r]) => [s, resolved(r, components.responses)])) {
    if (!status.startsWith("2")) continue;
    for (const [media, content] of Object.entries(response.content || {}))
      details.append(element("p", `${status} ${media}: `, typeOf(content.schema || {})), ...examplesOf(content));
  }
  return details;
}

function schemaDetails(name, schema) {
  const details = element("details", element("summary", element("code", name), "  ", schema.description || ""));
  details.id = "schema-" + name;
  const required = new Set(schema.required || []);
  if (schema.enum) details.append(element("p", typeOf(schema)));
  details.append(fieldTable(Object.entries(schema.properties || {}).map(([field, s]) => [field, s, required.has(field)])));
  return details;
}

function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target) {
    target.open = true;
    target.scrollIntoView();
  }
}

async function render() {
  const contract = await (await fetch("/openapi.json")).json();
  const sections = new Map();
  for (const [path, operations] of Object.entries(contract.paths))
    for (const [method, operation] of Object.entries(operations)) {
      const tag = (operation.tags || ["other"])[0];
      if (!sections.has(tag)) sections.set(tag, []);
      sections.get(tag).push(operationDetails(path, method, operation, contract.components));
    }
  const meaning = new Map((contract.tags || []).map((tag) => [tag.name, tag.description]));
  const place = document.getElementById("operations");
  for (const [tag, rows] of sections) place.append(element("h2", tag), element("p", meaning.get(tag) || ""), ...rows);
  for (const [name, schema] of Object.entries(contract.components.schemas))
    document.getElementById("schemas").append(schemaDetails(name, schema));
  openTarget();
}

addEventListener("hashchange", openTarget);
render();
