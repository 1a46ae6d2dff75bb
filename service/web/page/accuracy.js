// How near do predictions come to sources that they have never seen? By class and source, then the rows farthest off.

import { element, note, place, table } from "./elements.js";
import { bytes, count, fraction, seconds, words } from "./numbers.js";
import { get } from "./service.js";

const HEADS = [
  "Source",
  "What",
  "Of",
  "Rows",
  "Median error",
  "Mean error",
  "9 of 10 within",
  "In the 80 % interval",
  "Half its width",
  "Other methods, mean error",
];

const share = (value) => (value === null ? "–" : fraction(value));
const signed = (value) => (value === null ? "–" : `${value > 0 ? "+" : ""}${fraction(value)}`);

const others = (score) =>
  score.others
    .map(({ name, mape_fraction: theirs, scored, ours_mape_fraction: ours }) =>
      scored === score.scored ? `${name} ${share(theirs)}` : `${name} ${share(theirs)} of ${scored} (ours ${share(ours)})`,
    )
    .join(", ");

const rowOf = (score) => [
  score.source_key === "all" ? "all sources" : words(score.source_key),
  words(score.quantity),
  score.class,
  count(score.scored),
  share(score.median_fraction),
  share(score.mape_fraction),
  share(score.p90_fraction),
  share(score.coverage80_fraction),
  share(score.half_width_fraction),
  others(score),
];

const written = ({ unit }, value) => (unit === "bytes" ? bytes(value) : seconds(value));

const worstOf = (point) => [
  point.id,
  point.class,
  written(point, point.measured),
  written(point, point.predicted),
  signed(point.error_fraction),
  point.known_difference ?? "",
];

const runOf = (run) => [
  `${run.organisation}, ${run.system}`,
  run.benchmark,
  count(run.gpus),
  count(run.measured_gpu_hours),
  run.gpu_hours === null ? "–" : `${count(run.gpu_hours.value)} (${count(run.gpu_hours.low)} to ${count(run.gpu_hours.high)})`,
  signed(run.error_fraction),
  run.is_inside === null ? run.reason : run.is_inside ? "yes" : "no",
];

const summary = (score) =>
  element(
    "div",
    { class: "figure" },
    element("dt", {}, score.quantity === "peak" ? "Memory" : `Step, ${score.class}`),
    element(
      "dd",
      {},
      element("span", { class: "big" }, share(score.median_fraction)),
      element(
        "span",
        { class: "range" },
        `median of ${count(score.scored)} measurements of sources never seen; 9 of 10 within ${share(score.p90_fraction)}`,
      ),
    ),
  );

async function ask() {
  if (place("accuracy").dataset.held) return;
  place("accuracy").replaceChildren(note("comparing …"));
  try {
    const { held_out: board, all, steps } = await get("/v1/accuracy");
    const leading = board.classes.filter(({ quantity, class: name }) => quantity === "step" || name === "all");
    const inSample = `In sample, with the constants that these sources gave: step ${share(steps[0].median_fraction)}, memory ${share(all.median_fraction)} in the median.`;
    place("accuracy").replaceChildren(
      element("dl", { class: "key" }, leading.map(summary)),
      table("Held out, by class of question", HEADS, board.classes.map(rowOf), 3),
      element("h2", {}, "By source"),
      table("Held out, by source", HEADS, board.sources.map(rowOf), 3),
      element("h2", {}, "Farthest off"),
      table("Farthest off, held out", ["Row", "Of", "Measured", "Predicted", "Error", "Why"], board.worst.map(worstOf), 2),
      element("h2", {}, "GPU-hours of MLPerf Training"),
      table(
        "GPU-hours of MLPerf Training",
        ["System", "Benchmark", "GPUs", "Measured", "Predicted", "Error", "Inside"],
        board.mlperf.runs.map(runOf),
        2,
      ),
      note(inSample),
    );
    place("accuracy").dataset.held = "yes";
  } catch (error) {
    place("accuracy").replaceChildren(note(error.message, "fault"));
  }
}

/** The view of accuracy; it rests on what ships, so it is asked once. */
export const view = { name: "accuracy", title: "Accuracy", build() {}, show: ask };
