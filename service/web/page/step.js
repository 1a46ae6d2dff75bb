// Where do the seconds of a step go?

import { element, place, table } from "./elements.js";
import { bar, called, swatch } from "./bars.js";
import { number } from "./explanations.js";
import { ordered } from "./kinds.js";
import { fraction, seconds } from "./numbers.js";

/** One bar of the step, and its parts as a table. */
export function showStep({ step }) {
  const parts = ordered(
    "step",
    step.parts.map(({ kind, seconds: amount }) => ({ kind, amount })),
  );
  const total = parts.reduce((all, { amount }) => all + amount, 0);
  const spent = parts.filter(({ amount }) => amount > 0);
  const label = `One step: ${spent.map(({ kind, amount }) => `${called(kind)} ${seconds(amount)}`).join(", ")}`;
  const rows = spent.map(({ kind, amount }) => [
    element("span", {}, swatch("step", kind), called(kind)),
    number(`step.parts.${kind}.seconds`, amount),
    fraction(amount / total),
  ]);
  place("step").replaceChildren(
    element("div", { class: "row alone" }, bar("step", parts, { scale: total, label, write: seconds })),
    table("Parts of a step", ["Part", "Seconds", "Share"], rows),
  );
}
