// Where does a number come from? Every number is a button; its equation, inputs and source open beside the page.

import { element, note, place } from "./elements.js";
import { plain, words, writerOf } from "./numbers.js";
import { post } from "./service.js";

const held = new Map();
let opener = null;
let answered = null;

/** From now on the numbers of the answer are explained by the body that asked for it. */
export const explainBy = (body) => (answered = body);

/** A number as a button that opens its explanation: its path in an answer, and the body that asked for that one. */
export function number(path, value, { write = writerOf(path), body = answered } = {}) {
  if (value === null || value === undefined) return element("span", { class: "quiet" }, "–");
  const open = ({ currentTarget }) => explain(path, body, currentTarget);
  const hint = { title: "How is this worked out?", "aria-haspopup": "dialog" };
  return element(
    "button",
    { type: "button", class: "number", "data-path": path, ...hint, onclick: open },
    write(value),
  );
}

/** Two ends of a range, the unit told once where it is the same. */
function rangeOf(low, high) {
  const unit = high.slice(high.indexOf(" "));
  const once = high.includes(" ") && low.endsWith(unit) && low.length > unit.length;
  return `${once ? low.slice(0, -unit.length) : low} – ${high}`;
}

/** A number with the interval that it is expected in. */
export function interval(path, found, given = {}) {
  if (!found) return [number(path, null)];
  const write = given.write ?? writerOf(path);
  const range = rangeOf(write(found.low), write(found.high));
  const ends = found.low === found.high ? null : element("span", { class: "range" }, range);
  return [number(`${path}.value`, found.value, { ...given, write }), ends];
}

async function explained(body) {
  const key = JSON.stringify(body);
  if (!held.has(key)) {
    if (held.size > 8) held.clear();
    held.set(key, (await post("/v1/estimates?explain=true", body)).explain);
  }
  return held.get(key);
}

const shown = (value) => (typeof value === "number" ? plain(value) : JSON.stringify(value));

function inputs(given) {
  const rows = Object.entries(given).flatMap(([name, value]) => [
    element("dt", {}, words(name)),
    element("dd", {}, typeof value === "string" ? value || "–" : shown(value)),
  ]);
  return rows.length ? [element("h3", {}, "With"), element("dl", { class: "inputs" }, rows)] : [];
}

function parts(found) {
  const unit = found.unit ? ` ${found.unit}` : "";
  return [
    element("p", {}, found.summary),
    element("p", { class: "exact" }, `${found.exact ?? shown(found.value)}${unit}`),
    element("h3", {}, "Equation"),
    element("pre", { tabIndex: 0 }, found.equation),
    element("h3", {}, "In numbers"),
    element("pre", { tabIndex: 0 }, found.expression),
    ...inputs(found.inputs),
    element("h3", {}, "Source"),
    element("p", {}, found.source),
  ];
}

async function explain(path, body, from) {
  const dialog = place("explanation");
  opener = from;
  place("explained").textContent = words(path.replace(/\.value$/, "").replaceAll(".", " › "));
  const tell = (...found) => opener === from && place("explanation-text").replaceChildren(...found);
  tell(note("asking …"));
  dialog.showModal();
  try {
    const found = (await explained(body))[path];
    const none = note("This number is a difference or a sum of others that are explained.");
    tell(...(found ? parts(found) : [none]));
  } catch (error) {
    tell(note(error.message, "fault"));
  }
}

/** The dialog closes by its button, by Escape and by a click beside it; the number gets the focus back. */
export function build() {
  const dialog = place("explanation");
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  place("explanation-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => opener?.focus());
}
