// Which layout is best? A search with word of how far it is, the front of time, cost and memory, and a ranked table.

import { asked, change } from "./asked.js";
import { element, note, place, table } from "./elements.js";
import { interval, number } from "./explanations.js";
import { drawFront } from "./pareto.js";
import { bytes, count, fraction, words } from "./numbers.js";
import { typed } from "./controls.js";
import { bodyOf, bodyOfPlan, fieldsOfPlan, layoutWords, planBodyOf, questionOf } from "./question.js";
import { plans, post } from "./service.js";

const AUTOMATIC = [
  "expert_tensor",
  "shard_group",
  "virtual_group",
  "sequence_parallel",
  "reshard_after_forward",
  "context_method",
  "rank_order",
  "offload",
  "schedule",
];

const CHANGED = "The question has changed since this search.";

let search = null;
let searched = null;

/** The body of a search for what is asked now. */
const searchBody = () => planBodyOf(asked, new Set((asked.keep ?? "").split(",")), manner());

/** Say beside the plans whether they answer what is asked now. */
function tellChanged() {
  const told = place("plan-progress");
  const same = searched === null || searched === JSON.stringify(searchBody());
  if (!same) told.textContent = CHANGED;
  else if (told.textContent === CHANGED) told.textContent = "";
}

/** What is said of the search, in the fields above its button. */
function manner() {
  const limits = {};
  const days = typed(asked.most_days ?? "");
  const cost = typed(asked.most_cost_usd ?? "");
  const most = typed(asked.most_gpus ?? "");
  if (days) limits.days = days;
  if (cost) limits.cost_usd = cost;
  if (most) limits.gpus = [Math.min(asked.gpus ?? most, most), most];
  return { objective: asked.objective ?? "time", limits, top: 20 };
}

/** Take a plan, with the question that it was found for, and show a view of it; a fault is told beside the progress. */
export async function use(row, question, { view = "answer", progress = "plan-progress" } = {}) {
  place(progress).textContent = "";
  try {
    change({ ...question, ...(await fieldsToTake(row, question)), view });
    place("verdict").scrollIntoView({ block: "nearest" });
  } catch (error) {
    place(progress).textContent = error.message;
  }
}

/** The fields of a plan; those that the service fills in alike are left to it. */
async function fieldsToTake(row, question) {
  const fields = fieldsOfPlan(row);
  const body = bodyOf({ ...without(question, AUTOMATIC), ...without(fields, AUTOMATIC) });
  const { resolved } = await post("/v1/memory", body);
  for (const name of AUTOMATIC) if (resolved.layout[name] === fields[name]) fields[name] = undefined;
  return fields;
}

const without = (fields, names) => Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));

function rowOf(row, question) {
  const body = bodyOfPlan(question, row);
  const taking = (view) => ({ type: "button", class: "use", onclick: () => use(row, question, { view }) });
  const shown = (path, found) => element("span", { class: "stacked" }, interval(path, found, { body }));
  const words = layoutWords(row.layout, row.recipe);
  return [
    count(row.rank),
    element(
      "span",
      { class: "stacked" },
      element("button", taking("answer"), "Use this"),
      element("button", taking("export"), "Export"),
    ),
    element("span", { class: "layout" }, words),
    count(row.cluster.gpus),
    number("step.step_seconds.value", row.step_seconds.value, { body }),
    number("step.mfu_fraction.value", row.mfu_fraction.value, { body }),
    shown("memory.device_peak_bytes", row.device_peak_bytes),
    shown("totals.days", row.days),
    shown("totals.cost_usd", row.cost_usd),
  ];
}

const HEADS = ["Rank", "Take it", "Layout", "GPUs", "Step", "MFU", "Memory", "Wall time", "Cost"];

function counted({ generated, scored, fitting }) {
  return `${count(generated)} layouts, ${count(scored)} of them legal, ${count(fitting)} fit`;
}

function refusedOf({ refused }) {
  const rows = Object.entries(refused).sort((one, other) => other[1] - one[1]);
  const items = rows.map(([rule, number]) => element("li", {}, `${words(rule)}: ${count(number)}`));
  return element("details", {}, element("summary", {}, "Why others are not legal"), element("ul", {}, items));
}

async function show(answer, question) {
  const found = answer.plans.length;
  const rows = answer.plans.map((row) => rowOf(row, question));
  const best = answer.nearest ? [note("No layout fits; this one takes least memory:"), nearest(answer.nearest)] : [];
  const chart = element("div", { class: "chart", id: "pareto" });
  place("plans").replaceChildren(
    note(counted(answer.counts)),
    ...answer.warnings.map((text) => note(text, "warning")),
    ...(found ? [element("h3", {}, "Faster, cheaper, roomier"), chart] : best),
    ...(found ? [element("h3", {}, `The best ${found}`), table("Plans, best first", HEADS, rows, 3)] : []),
    refusedOf(answer.counts),
  );
  if (found) await drawFront(chart, answer, (row) => use(row, question));
}

const nearest = (row) =>
  element(
    "p",
    {},
    layoutWords(row.layout, row.recipe),
    `: ${bytes(row.device_peak_bytes.value)}, `,
    `${bytes(-row.headroom_bytes)} missing; ${fraction(row.mfu_fraction.value)} MFU`,
  );

/** Search, telling how far it is; a search under way is ended first. */
export async function find() {
  search?.abort();
  const mine = new AbortController();
  search = mine;
  place("plan-stop").hidden = false;
  place("plan-progress").textContent = "searching …";
  try {
    const question = questionOf(asked);
    const body = searchBody();
    const told = (counts) => (place("plan-progress").textContent = counted(counts));
    const answer = await plans(body, told, mine.signal);
    mine.signal.throwIfAborted();
    searched = JSON.stringify(body);
    place("plan-progress").textContent = "";
    tellChanged();
    await show(answer, question);
  } catch (error) {
    if (search === mine) place("plan-progress").textContent = error.name === "AbortError" ? "ended" : error.message;
  }
  if (search === mine) place("plan-stop").hidden = true;
}

const KEPT = [
  ["tensor", "tensor"],
  ["pipeline", "pipeline"],
  ["context", "context"],
  ["expert", "expert"],
  ["zero_stage", "ZeRO stage"],
  ["micro_batch", "micro-batch"],
  ["recompute", "recompute"],
];

function keepBox([name, label]) {
  const take = () => {
    const kept = KEPT.map(([one]) => one).filter((one) => place(`keep-${one}`).checked);
    change({ keep: kept.length ? kept.join(",") : undefined });
  };
  return element(
    "label",
    { class: "check" },
    element("input", { type: "checkbox", id: `keep-${name}`, onchange: take }),
    label,
  );
}

/** The view of plans; a shared address searches at once. */
export const view = {
  name: "plans",
  title: "Find a plan",
  build() {
    place("plan-keep").append(...KEPT.map(keepBox));
    place("plan-find").addEventListener("click", find);
    place("plan-stop").addEventListener("click", () => search?.abort());
    for (const name of ["objective", "most_gpus", "most_days", "most_cost_usd"]) {
      place(`plan-${name}`).addEventListener("change", ({ target }) => change({ [name]: target.value || undefined }));
    }
  },
  show() {
    const kept = (asked.keep ?? "").split(",");
    for (const [name] of KEPT) place(`keep-${name}`).checked = kept.includes(name);
    place("plan-objective").value = asked.objective ?? "time";
    for (const name of ["most_gpus", "most_days", "most_cost_usd"]) place(`plan-${name}`).value = asked[name] ?? "";
    if (place("plan-stop").hidden) tellChanged();
  },
};
