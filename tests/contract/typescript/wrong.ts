// What a program may not do: the compiler refuses each of these, and this file where it does not.

import createClient from "openapi-fetch";
import type { components, paths } from "./traincost.d.ts";

type Question = components["schemas"]["QuestionRequest"];

const traincost = createClient<paths, `${string}/${string}json`>({ baseUrl: "http://localhost:8000" });

const question: Question = { model: "llama-3.1-8b", recipe: { sequence_length: 8192 }, cluster: "dgx-h100" };
const { data, error } = await traincost.POST("/v1/estimates", { body: question });

// @ts-expect-error TS2345 a path that the service does not have
await traincost.POST("/v1/estimate", { body: question });
// @ts-expect-error TS2345 a method that the path does not take
await traincost.DELETE("/v1/estimates", {});
// @ts-expect-error TS2561 a misspelt field
export const field: Question = { ...question, recipe: { sequence_lenght: 8192 } };
// @ts-expect-error TS2353 a misspelt field inside one of several forms
export const nested: Question = { ...question, model: { preset: "llama-3.1-8b", num_hidden_layer: 16 } };
// @ts-expect-error TS2741 a question without its cluster
export const missing: Question = { model: "llama-3.1-8b", recipe: { sequence_length: 8192 } };
// @ts-expect-error TS2820 a choice that is none
export const choice: Question = { ...question, recipe: { sequence_length: 8192, precision: "bf16_mixed" } };
// @ts-expect-error TS2322 null where there has to be a number
export const nothing: Question = { ...question, recipe: { sequence_length: null } };
// @ts-expect-error TS2322 text where there has to be a number
export const text: Question = { ...question, layout: { tensor: "8" } };
// @ts-expect-error TS2353 a filter that is no column
await traincost.GET("/v1/gpus", { params: { query: { colour: ["green"] } } });
// @ts-expect-error TS2367 a kind of problem that there is not
export const code = error?.code === "too_busy";
// @ts-expect-error TS18047 totals, which are null without training_tokens
export const days = data?.memory && data.totals.days.value;
// @ts-expect-error TS2339 a field that the answer does not have
export const peak = data?.memory.peak_bytes;
