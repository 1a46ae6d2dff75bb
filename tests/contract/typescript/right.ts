// What a program may rely on: none of this needs a cast, an index signature or a guess.

import createClient from "openapi-fetch";
import type { components, paths } from "./traincost.d.ts";

type Schemas = components["schemas"];

const traincost = createClient<paths, `${string}/${string}json`>({ baseUrl: "http://localhost:8000" });

// A model is a name, a preset with changes, fields, or a config.json.
const config = { model_type: "llama", vocab_size: 32000, hidden_size: 4096, rope_scaling: null };
export const models: Schemas["QuestionRequest"]["model"][] = [
  "llama-3.1-8b",
  { preset: "llama-3.1-70b", num_hidden_layers: 64 },
  { vocab_size: 32000, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, intermediate_size: 11008 },
  { hf_config: config },
];

// Choices are unions that have names.
const precision: Schemas["Precision"] = "bf16-mixed";
const question: Schemas["QuestionRequest"] = {
  model: "llama-3.1-8b",
  recipe: { sequence_length: 8192, precision, recompute: { granularity: "selective", modules: ["core_attn"] } },
  layout: { tensor: 2, zero_stage: 1, context_method: null },
  cluster: { preset: "dgx-h100", nodes: 16 },
};

// Every field of an answer is there; null only where something may not be known.
export async function answered(): Promise<[number, "fits" | "at_risk" | "out_of_memory", number | undefined]> {
  const { data, error } = await traincost.POST("/v1/estimates", { body: question });
  if (error) throw new Error(error.errors.map(({ fix }) => fix).join());
  return [data.memory.device_peak_bytes.high, data.verdict, data.totals?.cost_usd?.value];
}

// What a check proposes is what a scenario takes.
export async function changed(scenario_id: string): Promise<string | undefined> {
  const check = await traincost.POST("/v1/check", { body: { ...question, limits: { days: 30 } } });
  const patch = check.data?.alternatives[0]?.patch;
  if (!patch) return undefined;
  const header = { "If-Match": "*" };
  const kept = await traincost.PATCH("/v1/scenarios/{scenario_id}", {
    params: { path: { scenario_id }, header },
    body: { question: patch },
  });
  return kept.data?.summary.verdict;
}

// What a file says goes into a question, and what a plan chose does too.
export async function imported(content: string): Promise<void> {
  const { data } = await traincost.POST("/v1/imports/{format}", {
    params: { path: { format: "megatron-lm" } },
    body: { content },
  });
  const sequence_length = data?.recipe.sequence_length;
  if (!data || sequence_length === undefined) return;
  const recipe = { ...data.recipe, sequence_length };
  const plans = await traincost.POST("/v1/plans", { body: { ...question, recipe, why_not: { layout: { tensor: 8 } } } });
  for (const plan of plans.data?.plans ?? [])
    await traincost.POST("/v1/estimates", { body: { ...question, recipe: plan.recipe, layout: plan.layout } });
}

// Of many questions each has its own status, which tells an answer from a problem.
export async function together(): Promise<string[]> {
  const check = { kind: "check", body: { ...question, limits: { days: 30 } } } as const;
  const { data } = await traincost.POST("/v1/batch", { body: { questions: [{ kind: "memory", body: question }, check] } });
  return (data?.answers ?? []).map((one) => (one.status === 200 ? one.body.id : one.body.detail));
}

// Varied fields are told by their dotted names; a row says its own fields and every number.
export async function varied(): Promise<(string | null)[]> {
  const vary: Schemas["SensitivityRequest"]["vary"] = { "recipe.micro_batch": [1, 2, null], "layout.zero_stage": [1, 3] };
  const { data } = await traincost.POST("/v1/sensitivity", { body: { question, vary, mode: "grid" } });
  return data?.rows.map((row) => row.reason) ?? [];
}

// Columns of a list are its filters.
export async function listed(): Promise<number[]> {
  const { data } = await traincost.GET("/v1/gpus", {
    params: { query: { vendor: ["NVIDIA", "AMD"], sort: ["-memory_bytes", "slug"], limit: 5 } },
  });
  return data?.items.map(({ memory_bytes }) => memory_bytes) ?? [];
}
