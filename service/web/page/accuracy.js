// How near do predictions come to what others measured? Errors by source, steps and memory apart.

import { element, note, place, table } from "./elements.js";
import { count, fraction, words } from "./numbers.js";
import { get } from "./service.js";

const HEADS = [
  "Source",
  "What",
  "Of",
  "Rows asked",
  "Median error",
  "9 of 10 within",
  "In the 80 % interval",
  "Fitted to it",
];

const share = (value) => (value === null ? "–" : fraction(value));

const rowOf = (group) => [
  words(group.source_key),
  words(group.quantity),
  group.moe ? `${group.class}, experts` : group.class,
  `${count(group.scored)} of ${count(group.rows)}`,
  share(group.median_fraction),
  share(group.p90_fraction),
  share(group.coverage80_fraction),
  group.in_sample ? "yes" : "no",
];

const summary = (name, group) =>
  element(
    "div",
    { class: "figure" },
    element("dt", {}, name),
    element(
      "dd",
      {},
      element("span", { class: "big" }, share(group.median_fraction)),
      element(
        "span",
        { class: "range" },
        `median of ${count(group.scored)} measurements; 9 of 10 within ${share(group.p90_fraction)}`,
      ),
    ),
  );

async function ask() {
  if (place("accuracy").dataset.held) return;
  place("accuracy").replaceChildren(note("comparing …"));
  try {
    const found = await get("/v1/accuracy");
    const scored = found.groups.filter(({ scored: rows }) => rows > 0);
    const unasked = found.groups.filter(({ scored: rows }) => rows === 0).reduce((all, { rows }) => all + rows, 0);
    place("accuracy").replaceChildren(
      element("dl", { class: "key" }, summary("Memory", found.all), summary("Step", found.steps[0])),
      table("Predicted against published, by source", HEADS, scored.map(rowOf), 3),
      note(`${count(unasked)} published rows of other sources do not say enough to be asked.`),
    );
    place("accuracy").dataset.held = "yes";
  } catch (error) {
    place("accuracy").replaceChildren(note(error.message, "fault"));
  }
}

/** The view of accuracy; it rests on what ships, so it is asked once. */
export const view = { name: "accuracy", title: "Accuracy", build() {}, show: ask };
