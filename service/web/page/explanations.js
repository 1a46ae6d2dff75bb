// Where does a number come from? Every number is a button; its equation, inputs and source open beside the page.

import { element, note, place } from "./elements.js";
import { words, writerOf } from "./numbers.js";
import { post } from "./service.js";

const held = new Map();
let opener = null;
let answered = null;
/** Names of the explanations on the way to the one that is shown. */
let trail = [];

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

/** The equation in letters and with the numbers put in, the value in bold. */
function equation(found) {
  const [value, ...left] = (found.in_numbers ?? "").split(" = ").reverse();
  const worked = element("p", { class: "worked" }, left.reverse().join(" = "), " = ", element("strong", {}, value));
  return [
    found.equation || found.in_numbers ? element("h3", {}, "Equation") : null,
    found.equation ? element("pre", { tabIndex: 0 }, found.equation) : null,
    found.in_numbers ? worked : null,
  ];
}

/** The inputs, each a button to its own explanation where it has one. */
function inputs(found, all) {
  const rows = found.shown_inputs.flatMap(({ label, shown, ref }) => [
    element("dt", {}, label),
    element("dd", {}, ref ? deeper(ref, shown, all) : shown),
  ]);
  const told = Object.entries(found.inputs).filter(([, value]) => typeof value === "string" && value !== "");
  const texts = told.flatMap(([name, value]) => [element("dt", {}, words(name)), element("dd", {}, value)]);
  if (!found.in_numbers || !(rows.length + texts.length)) return [];
  return [element("h3", {}, "With"), element("dl", { class: "inputs" }, rows, texts)];
}

function deeper(ref, text, all) {
  const onclick = () => {
    trail.push(ref);
    show(all);
    place("explanation-back").focus();
  };
  return element("button", { type: "button", class: "number", "data-ref": ref, onclick }, text);
}

function source({ kind, text, url }) {
  const link = url ? element("a", { href: url, target: "_blank", rel: "noopener" }, text) : text;
  return element("li", {}, element("span", { class: "quiet" }, `${kind}: `), link);
}

function parts(found, all) {
  const exact = `exactly ${found.exact}${found.unit ? ` ${found.unit}` : ""}`;
  return [
    element("p", { class: "exact", title: exact }, found.shown),
    element("p", {}, found.summary),
    ...equation(found),
    ...inputs(found, all),
    element("h3", {}, "Source"),
    element("ul", { class: "sources" }, found.references.map(source)),
  ];
}

/** Show the explanation at the end of the trail, with a way back to the one before it. */
function show(all) {
  const found = all[trail.at(-1)];
  place("explanation-back").hidden = trail.length < 2;
  place("explanation-back").onclick = () => {
    trail.pop();
    show(all);
    place(trail.length < 2 ? "explanation-close" : "explanation-back").focus();
  };
  if (found) place("explained").textContent = found.label;
  const none = note("This number is a difference or a sum of others that are explained.");
  place("explanation-text").replaceChildren(...(found ? parts(found, all) : [none]).filter(Boolean));
}

async function explain(path, body, from) {
  const dialog = place("explanation");
  opener = from;
  trail = [path];
  place("explanation-back").hidden = true;
  place("explained").textContent = words(path.replace(/\.value$/, "").replaceAll(".", " › "));
  place("explanation-text").replaceChildren(note("asking …"));
  dialog.showModal();
  try {
    const all = await explained(body);
    if (opener === from) show(all);
  } catch (error) {
    if (opener === from) place("explanation-text").replaceChildren(note(error.message, "fault"));
  }
}

/** The dialog closes by its button, by Escape and by a click beside it; the number gets the focus back. */
export function build() {
  const dialog = place("explanation");
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  place("explanation-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => opener?.focus());
}
