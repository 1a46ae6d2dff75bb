// One sentence as a question: its answer fills the form, and each part of it is a chip.

import { change } from "./asked.js";
import { element, place } from "./elements.js";
import { FIELDS } from "./fields.js";
import { fieldsOfPlan } from "./question.js";
import { get, toldBy } from "./service.js";

/** The fields of the page by those of a question that have another name there. */
const OWN = { gpu: "machine", preset: "machine" };

/** The fields of the page that a sentence states or leaves to its rules, and the layout that was planned. */
function fieldsOf({ question, answer: { resolved } }) {
  const { model, recipe, cluster, price } = question;
  const given = { ...recipe, usd_per_gpu_hour: price && resolved.price.usd_per_gpu_hour };
  const fields = FIELDS.filter(({ part }) => part !== "layout");
  return {
    ...Object.fromEntries(fields.map(({ name }) => [name, given[name]?.name ?? given[name]])),
    ...fieldsOfPlan(resolved),
    model,
    config: undefined,
    machine: cluster.preset ? `cluster:${cluster.preset}` : cluster.gpu,
  };
}

const readable = (value) => (typeof value === "number" ? value.toLocaleString("en-US") : String(value));

/** The value of a chip; a list where it may have others. */
function valueOf({ field, value, choices }) {
  if (!choices.length) return element("span", {}, readable(value));
  const name = field.split("/").pop();
  const options = [{ value, label: readable(value) }, ...choices];
  const take = ({ target }) => change({ [OWN[name] ?? name]: options[target.selectedIndex].value });
  return element(
    "select",
    { "aria-label": name.replaceAll("_", " "), onchange: take },
    options.map(({ label }) => element("option", {}, label)),
  );
}

function chipOf(chip) {
  const { text, field, state, note } = chip;
  const name = field === null ? "" : field.split("/").pop().replaceAll("_", " ");
  const means = field === null ? null : [` ${name} `, valueOf(chip)];
  const word = state === "understood" ? null : element("span", { class: "quiet" }, `${state.replaceAll("_", " ")}: `);
  return element("li", { class: `part ${state}`, title: note ?? "" }, word, text && element("q", {}, text), means);
}

/** Ask the sentence of the box. */
export function build() {
  place("sentence").addEventListener("submit", async (event) => {
    event.preventDefault();
    const fault = place("fault-sentence");
    fault.hidden = true;
    try {
      const found = await get(`/v1/ask?q=${encodeURIComponent(place("input-sentence").value)}`);
      place("parts").replaceChildren(...found.chips.map(chipOf));
      change(fieldsOf(found));
    } catch (error) {
      place("parts").replaceChildren();
      fault.textContent = toldBy(error);
      fault.hidden = false;
    }
  });
}
