// What does it take to train this model, and which layouts are best? Asked in types made of the service's own contract.
//
//   npm install openapi-fetch && npm pkg set type=module
//   npx openapi-typescript@7 http://localhost:8000/openapi.json --output traincost.d.ts
//   node clients.ts

import createClient from "openapi-fetch";
import type { components, paths } from "./traincost.d.ts";

type Problem = components["schemas"]["Problem"];
type Question = components["schemas"]["QuestionRequest"];
type Search = components["schemas"]["PlanRequest"];

// JSON alone: some paths have other forms too, for those whose Accept asks for them.
const traincost = createClient<paths, `${string}/${string}json`>({ baseUrl: "http://localhost:8000" });

// A body with its type: openapi-fetch alone would let a misspelt field pass, and the service would refuse it.
const question: Question = {
  model: "llama-3.1-8b",
  recipe: { sequence_length: 8192, micro_batch: 1, global_batch: 128, training_tokens: 15e12 },
  layout: { tensor: 2, zero_stage: 1 },
  cluster: { gpu: "h100-sxm5-80gb", gpus: 8 },
  price: { usd_per_gpu_hour: 2.5 },
};

// Either there is an answer, with every field, or there is a problem.
const estimate = await traincost.POST("/v1/estimates", { body: question });
if (estimate.error) throw new Error(explained(estimate.error));
const { memory, totals, verdict } = estimate.data;
console.log(`${verdict}: ${(memory.device_peak_bytes.value / 1e9).toFixed(1)} GB on the fullest GPU`);

// null is what was not asked: no totals without training_tokens, no cost without a price.
if (totals?.cost_usd) console.log(`${Math.round(totals.days.value)} days, ${Math.round(totals.cost_usd.value)} USD`);

// A problem says field by field what is wrong, and what to do about it.
const refused = await traincost.POST("/v1/estimates", { body: { ...question, layout: { tensor: 3 } } });
if (refused.error) console.log(explained(refused.error));

// A value pins a field of the layout, a list restricts it, and what is left out is chosen.
const search: Search = { ...question, layout: { zero_stage: [1, 3] }, top: 3 };
const plans = await traincost.POST("/v1/plans", { body: search });
if (plans.error) throw new Error(explained(plans.error));
for (const { layout, rank, step_seconds } of plans.data.plans) {
  const degrees = `tensor ${layout.tensor}, context ${layout.context}, pipeline ${layout.pipeline}`;
  console.log(`${rank}. ${degrees}, ZeRO ${layout.zero_stage}: ${step_seconds.value.toFixed(1)} s a step`);
}

// Each column of a list is a filter, and takes several values.
const prices = await traincost.GET("/v1/prices", {
  params: { query: { gpu: ["h100"], price_model: ["on-demand", "spot"], sort: ["usd_per_gpu_hour"], limit: 1 } },
});
for (const price of prices.data?.items ?? []) console.log(`${price.provider}: ${price.usd_per_gpu_hour} USD an hour`);

function explained(problem: Problem): string {
  switch (problem.code) {
    case "refused":
      return problem.errors.map(({ fix, message, pointer }) => `${pointer}: ${message}; ${fix}`).join("\n");
    case "busy":
    case "draining":
    case "not_ready":
      return "ask again in a moment";
    default:
      return `${problem.detail} (${problem.code}, request ${problem.request_id})`;
  }
}
