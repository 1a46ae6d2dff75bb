// Which layouts are planned for each model on each number of GPUs? One request for each, all of their plans as points.

import { bodyOf, bodyOfPlan, clusterOf, layoutWords } from "./question.js";
import { post } from "./service.js";

const PLANS = 100;

const COLUMNS = [
  "model",
  "gpus",
  "tensor",
  "pipeline",
  "virtual_pipeline",
  "context",
  "expert",
  "data",
  "zero_stage",
  "micro_batch",
  "recompute",
  "step_seconds",
  "tokens_per_s_per_gpu",
  "of_best_fraction",
  "mfu_fraction",
  "device_peak_bytes",
];

/** Powers of two from one to the most, both included. */
export function sizes(most) {
  const found = [];
  for (let gpus = 1; gpus <= most; gpus *= 2) found.push(gpus);
  return found;
}

/** The planned layouts of one model on one number of GPUs; none where none is legal or fits. */
export async function pointsOf(question, model, gpus, signal) {
  const own = model === "" ? question : { ...question, model, config: undefined };
  const { layout, recipe, price, ...rest } = bodyOf(own);
  const { micro_batch, recompute, training_tokens, ...fixed } = recipe;
  const body = { ...rest, recipe: fixed, cluster: clusterOf(question.machine, gpus), objective: "time", top: PLANS };
  const answer = await post("/v1/plans", body, signal).catch((error) => {
    if (error.name === "AbortError") throw error;
    return { plans: [], pareto: [] };
  });
  const rows = new Map();
  for (const row of [...answer.plans, ...answer.pareto]) rows.set(JSON.stringify([row.layout, row.recipe]), row);
  return [...rows.values()].map((row) => pointOf(own, model, gpus, row));
}

function pointOf(question, model, gpus, row) {
  const tokens = row.recipe.global_batch_tokens ?? row.recipe.global_batch * row.recipe.sequence_length;
  return {
    model,
    gpus,
    row,
    question,
    body: bodyOfPlan(question, row),
    rate: tokens / row.step_seconds.value / gpus,
    mfu: row.mfu_fraction.value,
    words: layoutWords(row.layout, row.recipe),
  };
}

/** Each point's rate beside the best of its model. */
export function normalised(points) {
  const best = new Map();
  for (const { model, rate } of points) best.set(model, Math.max(best.get(model) ?? 0, rate));
  return points.map((point) => ({ ...point, ofBest: point.rate / best.get(point.model) }));
}

/** The points as CSV; a text that a spreadsheet would take for a formula gets an apostrophe. */
export function csvOf(points) {
  const lines = points.map(({ model, gpus, rate, ofBest, mfu, row }) => {
    const { layout, recipe } = row;
    const recompute = recipe.recompute?.granularity ?? recipe.recompute;
    return [
      model,
      gpus,
      layout.tensor,
      layout.pipeline,
      layout.virtual_pipeline,
      layout.context,
      layout.expert,
      layout.data,
      layout.zero_stage,
      recipe.micro_batch,
      recompute,
      row.step_seconds.value,
      rate,
      ofBest,
      mfu,
      row.device_peak_bytes.value,
    ]
      .map(cell)
      .join(",");
  });
  return `${[COLUMNS.join(","), ...lines].join("\r\n")}\r\n`;
}

function cell(value) {
  if (typeof value !== "string") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
