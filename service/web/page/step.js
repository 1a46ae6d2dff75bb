// Where do the seconds of a step go?

import { element, place, table } from "./elements.js";
import { bar, called, swatch } from "./bars.js";
import { number } from "./explanations.js";
import { ordered } from "./kinds.js";
import { count, fraction, seconds, words } from "./numbers.js";

/** What one GPU sends in the step: a row for each axis and collective. */
function sent(communication) {
  const rows = communication.map(({ kind, link, ranks, ...row }) => {
    const cell = (name, given) => number(`communication.${kind}.${name}`, row[name], given);
    const amounts = ["sent_bytes", "seconds", "hidden_seconds", "exposed_seconds"].map((name) => cell(name));
    return [words(kind), cell("calls", { write: count }), ...amounts, count(ranks), words(link)];
  });
  const heads = ["Sent", "Calls", "Each sends", "Seconds", "Hidden", "Exposed", "Ranks", "Over"];
  return rows.length ? [table("Communication of one GPU in one step", heads, rows)] : [];
}

/** One bar of the step, its parts as a table, and what one GPU sends in it. */
export function showStep({ step, communication }) {
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
    ...sent(communication),
  );
}
