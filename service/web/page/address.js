// What does the address hold? The whole question, so that a link is a question: after the #, never sent to a server.

import { FIELD, START } from "./fields.js";

const OTHERS = [
  "model",
  "machine",
  "view",
  "units",
  "clusters",
  "published",
  "models",
  "most_map_gpus",
  "objective",
  "keep",
  "most_gpus",
  "most_days",
  "most_cost_usd",
  "check",
];

const stream = (bytes, through) => new Response(new Blob([bytes]).stream().pipeThrough(through)).arrayBuffer();

async function packed(value) {
  const bytes = new Uint8Array(
    await stream(new TextEncoder().encode(JSON.stringify(value)), new CompressionStream("deflate-raw")),
  );
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpacked(text) {
  const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(await stream(bytes, new DecompressionStream("deflate-raw"))));
}

/** What is asked as the part of an address after the #. */
export async function fragmentOf(asked) {
  const told = new URLSearchParams();
  for (const name of [...OTHERS, ...FIELD.keys()]) if (asked[name] !== undefined) told.set(name, asked[name]);
  if (asked.config) {
    told.delete("model");
    told.set("config", await packed(asked.config));
  }
  return `#${told.toString().replaceAll("%3A", ":").replaceAll("%2C", ",")}`;
}

function valueOf(name, text) {
  const field = FIELD.get(name);
  if (!field) return text;
  if (field.kind === "truth") return text === "true";
  return field.kind === "choice" && !field.whole ? text : Number(text);
}

/** What an address asks; the opening question where it asks nothing. */
export async function askedBy(fragment) {
  const told = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!told.has("model") && !told.has("config")) return { ...START };
  const asked = { machine: START.machine };
  for (const name of [...OTHERS, ...FIELD.keys()]) if (told.has(name)) asked[name] = valueOf(name, told.get(name));
  if (told.has("config")) asked.config = await unpacked(told.get("config"));
  return asked;
}
