// Where is the same job cheapest or fastest? One row for each machine, at the stated price or at published ones.

import { asked, change } from "./asked.js";
import { element, note, place, table } from "./elements.js";
import { interval, number } from "./explanations.js";
import { known } from "./model_choice.js";
import { count, usd, words } from "./numbers.js";
import { bodyOf, clusterOf } from "./question.js";
import { latest, post } from "./service.js";

const FIRST = ["a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "b200-sxm-180gb", "mi300x-192gb"];
const PUBLISHED = [{ provider: "*", price_model: "on-demand" }];
const HEADS = ["Machine", "Price", "Verdict", "Memory", "Step", "MFU", "Wall time", "Cost"];

const chosen = () => (asked.clusters ? asked.clusters.split(",") : FIRST).filter((one) => known.machines.has(one));

function chips() {
  const machines = chosen();
  const drop = (one) => change({ clusters: machines.filter((other) => other !== one).join(",") || undefined });
  return machines.map((one) =>
    element(
      "span",
      { class: "chip" },
      known.machines.get(one),
      element(
        "button",
        { type: "button", "aria-label": `Remove ${known.machines.get(one)}`, onclick: () => drop(one) },
        "×",
      ),
    ),
  );
}

function rowOf(row, body) {
  const machine = row.cluster ? `cluster:${row.cluster}` : row.gpu;
  const name = known.machines.get(machine) ?? row.gpu;
  const own = row.usd_per_gpu_hour === null ? {} : { price: { usd_per_gpu_hour: row.usd_per_gpu_hour } };
  const { price, ...question } = body;
  const at = { body: { ...question, cluster: clusterOf(machine, row.gpus), ...own } };
  const place = [row.provider, row.region].filter(Boolean).join(" ");
  const price_cell = row.usd_per_gpu_hour === null ? "–" : `${usd(row.usd_per_gpu_hour)} ${place}`;
  if (row.status !== 200)
    return [`${count(row.gpus ?? 0)} × ${name}`, price_cell, row.reason ?? "refused", "–", "–", "–", "–", "–"];
  const shown = (path, found) => element("span", { class: "stacked" }, interval(path, found, at));
  return [
    `${count(row.gpus)} × ${name}`,
    price_cell,
    element("span", { class: `word ${row.verdict}` }, words(row.verdict)),
    shown("memory.device_peak_bytes", row.device_peak_bytes),
    number("step.step_seconds.value", row.step_seconds.value, at),
    number("step.mfu_fraction.value", row.mfu_fraction.value, at),
    shown("totals.days", row.days),
    shown("totals.cost_usd", row.cost_usd),
  ];
}

const ask = latest(async () => {
  place("compare-chips").replaceChildren(...chips());
  place("compare-published").checked = asked.published === "yes";
  const body = bodyOf(asked);
  const { cluster, price, ...question } = body;
  const prices = asked.published === "yes" ? PUBLISHED : [price ?? null];
  const clusters = chosen().map((machine) => clusterOf(machine, asked.gpus));
  try {
    const given = { question, clusters, ...(prices[0] ? { prices } : {}) };
    const { rows } = await post("/v1/compare", given);
    place("comparison").replaceChildren(
      table(
        "The same job on other machines",
        HEADS,
        rows.map((row) => rowOf(row, body)),
        3,
      ),
    );
  } catch (error) {
    place("comparison").replaceChildren(note(error.message, "fault"));
  }
});

/** The view of other machines. */
export const view = {
  name: "compare",
  title: "Compare",
  build() {
    place("compare-add").append(...[...place("input-machine").children].map((group) => group.cloneNode(true)));
    place("compare-add").addEventListener("change", ({ target }) => {
      if (target.value) change({ clusters: [...new Set([...chosen(), target.value])].join(",") });
      target.value = "";
    });
    place("compare-published").addEventListener("change", ({ target }) =>
      change({ published: target.checked ? "yes" : undefined }),
    );
  },
  show: () => ask(true),
};
