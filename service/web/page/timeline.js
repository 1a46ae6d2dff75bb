// When does memory rise and fall? Live bytes of a stage by kind, and reserved ones, over the first and a later step.

import { asked } from "./asked.js";
import { called } from "./bars.js";
import { axis, colour, draw } from "./charts.js";
import { element, note, place, table } from "./elements.js";
import { number } from "./explanations.js";
import { familyOf, ordered } from "./kinds.js";
import { bytes, tick, words } from "./numbers.js";
import { bodyOf } from "./question.js";
import { latest, post } from "./service.js";

let stage = null;

const moment = ({ step, moment: when, micro_batches: batches }) =>
  `${step} step, ${words(when)}${batches ? `, ${batches} in flight` : ""}`;

function option(found, usable) {
  const kinds = ordered(
    "memory",
    found.kinds.map((kind, at) => ({ kind, at })),
  );
  const shown = kinds.filter(({ at }) => found.points.some((point) => point.series_bytes[at] > 0));
  const shade = new Map();
  const series = shown.map(({ kind, at }) => {
    const family = familyOf("memory", kind);
    const turn = shade.get(family) ?? 0;
    shade.set(family, turn + 1);
    const color = colour(`memory-${family}`);
    return {
      type: "line",
      name: called(kind),
      stack: "all",
      symbol: "none",
      lineStyle: { width: 0.5, color },
      areaStyle: { color, opacity: Math.max(0.35, 0.95 - 0.2 * turn) },
      itemStyle: { color },
      data: found.points.map((point) => point.series_bytes[at]),
    };
  });
  series.push({
    type: "line",
    name: "reserved",
    symbol: "none",
    lineStyle: { width: 1.5, type: "dashed", color: colour("quiet") },
    itemStyle: { color: colour("quiet") },
    data: found.points.map((point) => point.reserved_bytes),
  });
  const highest = Math.max(usable, found.reserved_peak_bytes);
  const step = tick(highest);
  const top = step * Math.ceil((1.02 * highest) / step);
  const later = found.points.findIndex(({ step }) => step === "later");
  series[0].markLine = {
    symbol: "none",
    silent: true,
    label: { color: colour("quiet"), position: "insideEndTop" },
    emphasis: { disabled: true },
    data: [
      {
        yAxis: usable,
        name: "usable",
        label: { formatter: `usable ${bytes(usable)}` },
        lineStyle: { color: colour("over") },
      },
      {
        xAxis: later,
        label: { formatter: "later step", position: "end", rotate: 0 },
        lineStyle: { color: colour("quiet") },
      },
    ],
  };
  return {
    legend: { type: "scroll", top: 0, textStyle: { color: colour("quiet") }, itemWidth: 12, icon: "roundRect" },
    tooltip: {
      renderMode: "richText",
      confine: true,
      trigger: "axis",
      formatter: (all) => told(found.points[all[0].dataIndex], found.kinds),
    },
    grid: { left: 8, right: 24, top: 64, bottom: 8, containLabel: true },
    xAxis: axis({
      type: "category",
      boundaryGap: false,
      axisLabel: { color: colour("quiet"), interval: 0, hideOverlap: true },
      data: found.points.map(({ moment: when }) => words(when)),
    }),
    yAxis: axis({ type: "value", max: top, interval: step, axisLabel: { color: colour("quiet"), formatter: bytes } }),
    series,
  };
}

function told(point, kinds) {
  const lines = kinds.map((kind, at) => [kind, point.series_bytes[at]]).filter(([, held]) => held > 0);
  const said = lines.sort((one, other) => other[1] - one[1]).map(([kind, held]) => `${called(kind)}  ${bytes(held)}`);
  const freed = point.frees_cache ? ", full: the cache is freed" : "";
  const reserved = `reserved  ${bytes(point.reserved_bytes)}${freed}`;
  return [`${moment(point)}: ${bytes(point.allocated_bytes)}`, reserved, ...said].join("\n");
}

function choice(answer, body) {
  const options = answer.stages.map((one) => element("option", { value: String(one.stage) }, `Stage ${one.stage}`));
  const select = element(
    "select",
    {
      id: "timeline-stage",
      onchange: ({ target }) => {
        stage = Number(target.value);
        show(answer, body);
      },
    },
    options,
  );
  return element("p", { class: "inline" }, element("label", { for: "timeline-stage" }, "Stage"), select);
}

async function show(answer, body) {
  const found = answer.stages[stage] ?? answer.stages[answer.peak_stage];
  const chart = place("timeline-chart") ?? element("div", { class: "chart", id: "timeline-chart" });
  const rows = found.points.map((point) => [moment(point), bytes(point.allocated_bytes), bytes(point.reserved_bytes)]);
  const path = `memory.stages.${found.stage}`;
  place("timeline").replaceChildren(
    choice(answer, body),
    element(
      "p",
      {},
      "First step ",
      number(`${path}.first_step_peak_bytes`, found.first_step_peak_bytes, { body }),
      ", later steps ",
      number(`${path}.allocated_peak_bytes`, found.later_step_peak_bytes, { body }),
      ` at their peak, in ${words(found.peak.moment)}. The allocator reserves `,
      number(`${path}.first_step_reserved_bytes`, found.first_step_reserved_bytes, { body }),
      " in the first step and at most ",
      number(`${path}.reserved_peak_bytes`, found.reserved_peak_bytes, { body }),
      " in a later one.",
    ),
    chart,
    element(
      "details",
      {},
      element("summary", {}, "The same as a table"),
      table("Live and reserved bytes over a step", ["Moment", "Live", "Reserved"], rows),
    ),
  );
  place("timeline-stage").value = String(found.stage);
  const said = `Live bytes of stage ${found.stage} over the first and a later step; peak ${bytes(found.peak.allocated_bytes)} of ${bytes(answer.usable_bytes)}`;
  await draw(chart, said, () => option(found, answer.usable_bytes));
}

const ask = latest(async () => {
  const body = bodyOf(asked);
  try {
    await show(await post("/v1/memory/timeline", body), body);
  } catch (error) {
    place("timeline").replaceChildren(note(error.message, "fault"));
  }
});

/** The view over a step. */
export const view = { name: "timeline", title: "Over a step", build() {}, show: () => ask(true) };
