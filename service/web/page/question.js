// What is asked, as the body that the service reads: the fields of the page put under their nouns.

import { FIELD, FIELDS } from "./fields.js";

/** A machine of the page as the cluster of a question: a preset that begins with cluster:, or a GPU. */
export function clusterOf(machine, gpus) {
  const preset = machine.startsWith("cluster:");
  return { [preset ? "preset" : "gpu"]: preset ? machine.slice(8) : machine, ...(gpus ? { gpus } : {}) };
}

/** The question as it stands now, without how it is looked at: what the answer to it is shown, explained and taken by. */
export const questionOf = (asked) =>
  Object.fromEntries(["model", "config", "machine", ...FIELD.keys()].map((name) => [name, asked[name]]));

/** The body of POST /v1/estimates. */
export function bodyOf(asked) {
  const body = {
    model: asked.config ? { hf_config: asked.config } : asked.model,
    recipe: {},
    layout: {},
    cluster: clusterOf(asked.machine, asked.gpus),
  };
  for (const { name, part } of FIELDS) {
    if (asked[name] === undefined || part === "cluster") continue;
    if (part === "price") body.price = { [name]: asked[name] };
    else body[part][name] = asked[name];
  }
  return body;
}

/** The body of POST /v1/plans: what a search chooses is left out, but for what the reader keeps. */
export function planBodyOf(asked, kept, manner) {
  const { layout, recipe, ...rest } = bodyOf(asked);
  const { micro_batch, recompute, ...fixed } = recipe;
  const keep = (values) => Object.fromEntries(Object.entries(values).filter(([name]) => kept.has(name)));
  return { ...rest, recipe: { ...fixed, ...keep({ micro_batch, recompute }) }, layout: keep(layout), ...manner };
}

/** The body that asks one row of plans again. */
export function bodyOfPlan(asked, row) {
  const { model, price } = bodyOf(asked);
  const { global_batch_tokens, ...recipe } = row.recipe;
  return { model, recipe, layout: row.layout, cluster: row.cluster, ...(price ? { price } : {}) };
}

/** Degrees and switches of a layout that a search chose, as fields of the page. */
export function fieldsOfPlan(row) {
  const found = { gpus: row.cluster.gpus, micro_batch: row.recipe.micro_batch };
  if (typeof row.recipe.recompute === "string") found.recompute = row.recipe.recompute;
  for (const { name, part } of FIELDS)
    if (part === "layout" && row.layout[name] !== null) found[name] = row.layout[name];
  return found;
}

/** A layout in a few letters: tp 2 · pp 4 · dp 8. */
export function layoutWords(layout, recipe = {}) {
  const degrees = [
    ["tp", layout.tensor],
    ["pp", layout.pipeline],
    ["vpp", layout.virtual_pipeline],
  ];
  degrees.push(["cp", layout.context], ["ep", layout.expert], ["dp", layout.data]);
  const told = degrees.filter(([letters, degree]) => degree > 1 || letters === "tp").map((pair) => pair.join(" "));
  told.push(`ZeRO ${layout.zero_stage}`);
  if (recipe.micro_batch) told.push(`mbs ${recipe.micro_batch}`);
  if (recipe.recompute && recipe.recompute !== "none") {
    told.push(`recompute ${recipe.recompute.granularity ?? recipe.recompute}`);
  }
  return told.join(" · ");
}

/** The field of the page that a problem of the service points at. */
export function fieldAt(pointer) {
  const last = (pointer ?? "").split("/").pop();
  return FIELD.has(last) ? last : null;
}
