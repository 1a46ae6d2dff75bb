// The fields of the question as sliders, selects and inputs; what is left out shows what the service filled in.

import { asked, change, whenChanged } from "./asked.js";
import { element, place } from "./elements.js";
import { FIELD, FIELDS } from "./fields.js";
import { words } from "./numbers.js";

const LETTERS = { k: 1e3, m: 1e6, b: 1e9, t: 1e12 };
const USUAL = "usual";

const NUMBER = /^\$?(\d{1,3}(?:,\d{3}){2,}|[\d_]*)(\.\d*)?(e[+-]?\d{1,3})?([kmbgt]i?)?(tokens|usd)?(\/(?:gpu[-/]?)?(?:h|hr|hour))?$/;
const BINARY = { ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };
const isPowerOfTwo = (number) => Number.isInteger(Math.log2(number));

/** A number as people type it: 8192, 2e11, 200B, 8k; undefined where there is none, NaN where it is none or several. */
export function typed(text, name = "") {
  const bare = text.trim().toLowerCase().replaceAll(" ", "");
  if (bare === "") return undefined;
  const [, whole, fraction = "", power = "", letter, , rate] = NUMBER.exec(bare) || [];
  if (whole === undefined || `${whole}${fraction}` === "" || (rate && !name.startsWith("usd"))) return NaN;
  const number = Number(`${whole.replace(/[,_]/g, "")}${fraction}${power}`);
  if (letter === undefined) return number;
  if (name === "sequence_length" && letter === "k") return isPowerOfTwo(number) ? number * BINARY.ki : NaN;
  return number * (BINARY[letter] ?? LETTERS[letter]);
}

/** A number as it stands in an input. */
function spelled(value) {
  if (value === undefined) return "";
  const letter = Object.keys(LETTERS).findLast((one) => value >= LETTERS[one] && value >= 1e6);
  return letter ? `${Number((value / LETTERS[letter]).toPrecision(9))}${letter.toUpperCase()}` : String(value);
}

function nearest(stops, value) {
  const far = stops.map((stop) => Math.abs(Math.log(stop / value)));
  return far.indexOf(Math.min(...far));
}

const labelled = (field, ...inputs) =>
  element(
    "div",
    { class: `field ${field.kind}`, id: `field-${field.name}` },
    element("label", { for: `input-${field.name}` }, field.label),
    inputs,
    element("p", { class: "fault", id: `fault-${field.name}`, hidden: true }),
  );

function numberInput(field) {
  const take = ({ target }) => {
    const value = typed(target.value, field.name);
    if (Number.isNaN(value)) tell(field.name, "give a number, like 8192, 8k, 2e11 or 200B");
    else change({ [field.name]: value });
  };
  const hints = { type: "text", inputMode: "decimal", autocomplete: "off", "aria-describedby": `fault-${field.name}` };
  return element("input", { id: `input-${field.name}`, ...hints, onchange: take });
}

function stepsOf(field) {
  const take = ({ target }) => change({ [field.name]: field.stops[target.value] });
  const range = { type: "range", min: "0", max: String(field.stops.length - 1), step: "1", oninput: take };
  const label = { id: `slider-${field.name}`, "aria-label": `${field.label}, slider` };
  return labelled(field, numberInput(field), element("input", { ...range, ...label }));
}

function choiceOf(field, choices) {
  const names = field.kind === "truth" ? [{ name: "true" }, { name: "false" }] : choices[`${field.part}.${field.name}`];
  const options = (names || []).map(({ name, meaning }) => element("option", { value: name, title: meaning }, name));
  const take = ({ target }) => change({ [field.name]: chosen(field, target.value) });
  const usual = element("option", { value: "" }, USUAL);
  return labelled(field, element("select", { id: `input-${field.name}`, onchange: take }, usual, options));
}

function chosen(field, text) {
  if (text === "") return undefined;
  if (field.kind === "truth") return text === "true";
  return field.whole ? Number(text) : text;
}

/** Put the fields into their groups; choices are those of /v1/choices. */
export function build(choices) {
  for (const field of FIELDS) {
    const make = { steps: stepsOf, number: (one) => labelled(one, numberInput(one)) }[field.kind] ?? choiceOf;
    place(`group-${field.group}`).append(make(field, choices));
  }
  whenChanged((names) => names.filter((name) => FIELD.has(name)).forEach(show));
}

function show(name) {
  const value = asked[name];
  const { kind, stops } = FIELD.get(name);
  const input = place(`input-${name}`);
  input.value = kind === "steps" || kind === "number" ? spelled(value) : String(value ?? "");
  tell(name, "");
  if (kind !== "steps") return;
  const slider = place(`slider-${name}`);
  if (value > 0) slider.value = nearest(stops, value);
  slider.classList.toggle("unset", value === undefined);
  slider.setAttribute("aria-valuetext", spelled(value) || USUAL);
}

/** Say below a field what is wrong with it; nothing where nothing is. */
export function tell(name, text) {
  place(`fault-${name}`).textContent = text;
  place(`fault-${name}`).hidden = !text;
  place(`input-${name}`).setAttribute("aria-invalid", String(Boolean(text)));
}

/** Show what the service filled in for what was left out. */
export function showFilled(resolved) {
  for (const { name, part, kind } of FIELDS) {
    tell(name, "");
    if (asked[name] !== undefined) continue;
    const filled = resolved[part]?.[name];
    const text = filled === null || filled === undefined ? "" : (filled.name ?? String(filled));
    if (kind === "steps" || kind === "number") place(`input-${name}`).placeholder = text || "not given";
    else place(`input-${name}`).options[0].textContent = text ? `${words(text)} (${USUAL})` : USUAL;
    if (kind === "steps" && filled > 0) place(`slider-${name}`).value = nearest(FIELD.get(name).stops, filled);
  }
}
