// How do models scale? Every planned layout a point: GPUs across, models up, tokens/s/GPU as size, MFU as colour.

import { asked, change } from "./asked.js";
import { axis, colour, draw } from "./charts.js";
import { download, element, note, place, table } from "./elements.js";
import { number } from "./explanations.js";
import { known } from "./model_choice.js";
import { count, fraction } from "./numbers.js";
import { use } from "./plans.js";
import { questionOf } from "./question.js";
import { csvOf, normalised, pointsOf, sizes } from "./scaling_points.js";

const MOST_MODELS = 8;
const BAND = 0.8;

let drawing = null;

const models = () => (asked.models ? asked.models.split(",") : [asked.model ?? ""]);
const called = (slug) => known.models.get(slug)?.name ?? (slug || "your config.json");

function chips() {
  const all = models();
  const drop = (one) => change({ models: all.filter((other) => other !== one).join(",") || undefined });
  return all.map((one) =>
    element(
      "span",
      { class: "chip" },
      called(one),
      element("button", { type: "button", "aria-label": `Remove ${called(one)}`, onclick: () => drop(one) }, "×"),
    ),
  );
}

/** Where a point stands in its cell: its rank among the layouts there across, its share of the model's best up. */
function placed(all, slugs) {
  const seen = new Map();
  const many = new Map();
  const key = ({ model, gpus }) => `${model} ${gpus}`;
  for (const point of all) many.set(key(point), (many.get(key(point)) ?? 0) + 1);
  return all.map((point) => {
    const rank = seen.get(key(point)) ?? 0;
    seen.set(key(point), rank + 1);
    const across =
      Math.log2(point.gpus) + (many.get(key(point)) > 1 ? 0.7 * (rank / (many.get(key(point)) - 1) - 0.5) : 0);
    const up = slugs.indexOf(point.model) + BAND * (point.ofBest - 0.5);
    return { ...point, value: [across, up, point.mfu], symbolSize: 3 + 13 * point.ofBest ** 2 };
  });
}

/** A colour between three of the style sheet, for a share from 0 to 1. */
function shade(share) {
  const stops = ["low", "middle", "high"].map((name) =>
    colour(name)
      .match(/[0-9a-f]{2}/gi)
      .map((pair) => parseInt(pair, 16)),
  );
  const [from, to, part] = share < 0.5 ? [stops[0], stops[1], 2 * share] : [stops[1], stops[2], 2 * share - 1];
  return `rgb(${from.map((value, at) => Math.round(value + part * (to[at] - value))).join(" ")})`;
}

function legend(all) {
  const rates = all.map(({ mfu }) => mfu);
  const ends = [Math.min(...rates), Math.max(...rates)].map((rate) => element("span", {}, fraction(rate)));
  const ramp = element("span", { class: "ramp", "aria-hidden": "true" });
  return element("p", { class: "inline quiet" }, "MFU ", ends[0], ramp, ends[1], " · click a point to take its layout");
}

function options(all, slugs) {
  const told = ({ data }) =>
    `${called(data.model)} on ${data.gpus} GPUs\n${data.words}\n${count(data.rate)} tokens/s on each GPU, ` +
    `${fraction(data.ofBest)} of its best\n${fraction(data.mfu)} MFU`;
  const last = Math.max(...all.map(({ gpus }) => Math.log2(gpus)));
  const rates = all.map(({ mfu }) => mfu);
  const [low, high] = [Math.min(...rates), Math.max(...rates)];
  const painted = placed(all, slugs).map((point) => ({
    ...point,
    itemStyle: { color: shade(high > low ? (point.mfu - low) / (high - low) : 1) },
  }));
  return {
    tooltip: { renderMode: "richText", confine: true, formatter: told },
    grid: { left: 8, right: 16, top: 16, bottom: 32, containLabel: true },
    xAxis: axis({
      type: "value",
      min: -1,
      max: last + 1,
      interval: 1,
      name: "GPUs",
      nameLocation: "middle",
      nameGap: 26,
      axisLabel: {
        color: colour("quiet"),
        formatter: (power) => (power >= 0 && power <= last ? count(2 ** power) : ""),
      },
      axisLine: { onZero: false, lineStyle: { color: colour("line") } },
      splitLine: { show: false },
    }),
    yAxis: axis({
      type: "value",
      min: -0.5,
      max: slugs.length - 0.5,
      interval: 0.5,
      axisLabel: { color: colour("quiet"), formatter: (at) => (Number.isInteger(at) ? called(slugs[at]) : "") },
      axisTick: { show: false },
      axisLine: { show: false },
      splitLine: { show: false },
    }),
    series: [{ type: "scatter", data: painted, itemStyle: { opacity: 0.85 } }],
  };
}

function bestRows(all) {
  const best = new Map();
  for (const point of all) {
    const key = `${point.model} ${point.gpus}`;
    if (!best.has(key) || best.get(key).rate < point.rate) best.set(key, point);
  }
  return [...best.values()].map((point) => [
    called(point.model),
    count(point.gpus),
    element("span", { class: "layout" }, point.words),
    number("step.tokens_per_s_per_gpu.value", point.rate, { write: count, body: point.body }),
    number("step.mfu_fraction.value", point.mfu, { body: point.body }),
    fraction(point.ofBest),
  ]);
}

async function show(points, slugs) {
  const all = normalised(points);
  const chart = place("map-chart") ?? element("div", { class: "chart tall", id: "map-chart" });
  if (!all.length) return place("map").replaceChildren(note("Nothing fits on any of these sizes."));
  const save = element(
    "button",
    { type: "button", onclick: () => download("scaling.csv", csvOf(all), "text/csv") },
    "Download CSV",
  );
  const heads = ["Model", "GPUs", "Best layout", "Tokens/s on each GPU", "MFU", "Of its best"];
  if (!place("map-chart")) place("map").replaceChildren(chart, element("div", { id: "map-rest" }));
  place("map-rest").replaceChildren(
    legend(all),
    element("p", {}, save),
    table("The fastest layout of each", heads, bestRows(all), 3),
  );
  const said = `${all.length} planned layouts of ${slugs.length} models; the table below lists the fastest of each size`;
  await draw(
    chart,
    said,
    () => options(all, slugs),
    ({ row, question }) => use(row, question, { progress: "map-progress" }),
  );
}

async function plan() {
  drawing?.abort();
  const mine = new AbortController();
  drawing = mine;
  const question = questionOf(asked);
  const slugs = models();
  const points = [];
  const work = slugs.flatMap((model) => sizes(Number(asked.most_map_gpus ?? 512)).map((gpus) => [model, gpus]));
  place("map").replaceChildren();
  place("map-stop").hidden = false;
  try {
    for (const [done, [model, gpus]] of work.entries()) {
      place("map-progress").textContent = `${done} of ${work.length} searches, ${count(points.length)} layouts`;
      points.push(...(await pointsOf(question, model, gpus, mine.signal)));
      if (points.length) await show(points, slugs);
    }
    place("map-progress").textContent = `${count(points.length)} layouts`;
    await show(points, slugs);
  } catch (error) {
    if (drawing === mine) place("map-progress").textContent = error.name === "AbortError" ? "ended" : error.message;
  }
  if (drawing === mine) place("map-stop").hidden = true;
}

/** The view of the scaling map. */
export const view = {
  name: "map",
  title: "Scaling map",
  build() {
    place("map-draw").addEventListener("click", plan);
    place("map-stop").addEventListener("click", () => drawing?.abort());
    place("map-most").addEventListener("change", ({ target }) => change({ most_map_gpus: target.value }));
    place("map-add").addEventListener("change", ({ target }) => {
      if (known.models.has(target.value)) {
        change({ models: [...new Set([...models(), target.value])].slice(0, MOST_MODELS).join(",") });
      }
      target.value = "";
    });
  },
  show() {
    place("map-chips").replaceChildren(...chips());
    place("map-most").value = asked.most_map_gpus ?? "512";
  },
};
