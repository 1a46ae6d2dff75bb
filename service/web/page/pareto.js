// Which plans are better than all others in time, cost or memory? Each a point: time across, cost up, room as its size.

import { axis, colour, draw } from "./charts.js";
import { bytes, days, seconds, usd } from "./numbers.js";
import { layoutWords } from "./question.js";

const least = (values) => Math.min(...values);

/** The front and the ranked plans; without tokens a step's seconds, without a price GPUs stand on the axes. */
export function drawFront(place, answer, picked) {
  const rows = new Map();
  for (const row of [...answer.plans, ...answer.pareto])
    rows.set(JSON.stringify([row.layout, row.recipe, row.cluster]), row);
  const all = [...rows.values()];
  const across = all[0].days
    ? ["Wall time", (row) => row.days.value, days]
    : ["Step", (row) => row.step_seconds.value, seconds];
  const up = all[0].cost_usd ? ["Cost", (row) => row.cost_usd.value, usd] : ["GPUs", (row) => row.cluster.gpus, String];
  const fronted = new Set(answer.pareto.map((row) => JSON.stringify([row.layout, row.recipe, row.cluster])));
  const most = Math.max(...all.map((row) => row.headroom_bytes), 1);
  const points = (inFront) =>
    [...rows]
      .filter(([key]) => fronted.has(key) === inFront)
      .map(([, row]) => ({
        value: [across[1](row), up[1](row)],
        symbolSize: 8 + (16 * Math.max(0, row.headroom_bytes)) / most,
        row,
      }));
  const told = ({ data: { row } }) =>
    `${row.cluster.gpus} GPUs: ${layoutWords(row.layout, row.recipe)}\n${across[0]} ${across[2](across[1](row))}, ` +
    `${up[0]} ${up[2](up[1](row))}\n${bytes(row.headroom_bytes)} free`;
  const said =
    `${fronted.size} plans of which none is faster, cheaper and roomier at once, from ` +
    `${across[2](least(all.map(across[1])))}; from ${up[2](least(all.map(up[1])))}. The table below lists the best.`;
  const scale = ([name, , write]) => ({
    type: "value",
    scale: true,
    name,
    axisLabel: { color: colour("quiet"), formatter: write },
  });
  const options = () => ({
    legend: { top: 0, right: 8, textStyle: { color: colour("quiet") }, itemWidth: 12 },
    tooltip: { renderMode: "richText", confine: true, formatter: told },
    xAxis: axis({ ...scale(across), nameLocation: "middle", nameGap: 30 }),
    yAxis: axis(scale(up)),
    grid: { left: 8, right: 24, top: 40, bottom: 32, containLabel: true },
    series: [
      series("ranked", points(false), colour("faint")),
      series("none is better in all", points(true), colour("accent")),
    ],
  });
  return draw(place, said, options, ({ row }) => picked(row));
}

const series = (name, data, color) => ({ type: "scatter", name, data, itemStyle: { color, opacity: 0.75 } });
