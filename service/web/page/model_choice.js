// Which model, and on which machine? A preset by name, or a config.json that is pasted, opened or dropped on the page.

import { asked, change, whenChanged } from "./asked.js";
import { element, place } from "./elements.js";
import { short } from "./numbers.js";

/** The presets, and what else holds their names. */
export const known = { models: new Map(), machines: new Map() };

/** The config.json that a text is. */
function configOf(text) {
  const config = JSON.parse(text.replace(/-?\bInfinity\b/g, "null"));
  if (typeof config !== "object" || config === null || !config.model_type) {
    throw new TypeError("this is no config.json: it names no model_type");
  }
  return config;
}

function take(text) {
  const fault = place("fault-config");
  fault.hidden = true;
  if (!text.trim()) return;
  try {
    change({ config: configOf(text), model: undefined });
    place("paste").open = false;
  } catch (error) {
    fault.textContent = error instanceof SyntaxError ? `this is no JSON: ${error.message}` : error.message;
    fault.hidden = false;
  }
}

const options = (rows) => rows.map(({ value, label }) => element("option", { value }, label));

function machines(gpus, clusters) {
  const groups = new Map([["Clusters", clusters.map((row) => ({ value: `cluster:${row.slug}`, label: row.name }))]]);
  for (const row of gpus) {
    const group = `${row.vendor} ${row.architecture}`;
    groups.set(group, [...(groups.get(group) ?? []), { value: row.slug, label: row.name }]);
  }
  for (const rows of groups.values()) for (const { value, label } of rows) known.machines.set(value, label);
  return [...groups].map(([label, rows]) => element("optgroup", { label }, options(rows)));
}

function showModel() {
  place("input-model").value = asked.config ? "" : (asked.model ?? "");
  place("input-model").placeholder = asked.config ? `config.json: ${asked.config.model_type}` : "search the presets";
  place("pasted").hidden = !asked.config;
  place("pasted-name").textContent = asked.config ? `config.json of a ${asked.config.model_type} model` : "";
}

/** The presets as words that are searched, and the ways in for a config.json. */
export function build(models, gpus, clusters) {
  const rows = models.map((row) => ({ value: row.slug, label: `${row.name}, ${short(row.exact_total)} parameters` }));
  for (const row of models) known.models.set(row.slug, row);
  place("models").append(...options(rows));
  place("input-machine").append(...machines(gpus, clusters));
  place("input-machine").addEventListener("change", ({ target }) => change({ machine: target.value }));
  place("input-model").addEventListener("change", ({ target }) => {
    if (target.value.trim().startsWith("{")) take(target.value);
    else if (target.value.trim()) change({ model: target.value.trim(), config: undefined });
  });
  place("input-config").addEventListener("input", ({ target }) => take(target.value));
  place("input-file").addEventListener("change", async ({ target }) => {
    if (target.files[0]) take(await target.files[0].text());
  });
  place("unpaste").addEventListener("click", () => change({ config: undefined, model: "llama-3.1-8b" }));
  takeDropped();
  whenChanged((names) => {
    if (names.includes("model") || names.includes("config")) showModel();
    if (names.includes("machine")) place("input-machine").value = asked.machine;
  });
}

function takeDropped() {
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    place("paste").open = true;
    take(file ? await file.text() : event.dataTransfer.getData("text"));
  });
}
