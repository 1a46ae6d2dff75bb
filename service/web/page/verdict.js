// Does it fit, how long does it take, what does it cost? The answer in a line and in eight figures.

import { asked } from "./asked.js";
import { element, place } from "./elements.js";
import { interval, number } from "./explanations.js";
import { known } from "./model_choice.js";
import { bytes, count, energy, fraction, large, short } from "./numbers.js";

const WORDS = { fits: "Fits", at_risk: "At risk", out_of_memory: "Does not fit" };

const FIGURES = [
  ["Peak memory of a GPU", "memory.device_peak_bytes"],
  ["Step", "step.step_seconds"],
  ["Tokens/s on each GPU", "step.tokens_per_s_per_gpu", count],
  ["MFU", "step.mfu_fraction"],
  ["Wall time", "totals.days"],
  ["GPU-hours", "totals.gpu_hours", large],
  ["Cost", "totals.cost_usd"],
  ["Energy", "totals.energy_kwh", energy],
];

const at = (answer, path) => path.split(".").reduce((inner, name) => inner?.[name], answer);

/** What holds of the numbers: bytes free or missing, and how sure that is. */
function sentence({ memory, resolved }) {
  const machine = known.machines.get(asked.machine) ?? resolved.gpu.slug;
  const kind = asked.machine.startsWith("cluster:") ? "GPUs of" : "×";
  const free = memory.headroom_bytes;
  const room = free >= 0 ? `${bytes(free)} free` : `${bytes(-free)} missing`;
  const risk = memory.oom_probability_fraction;
  const doubt = risk > 0.001 && risk < 0.999 ? `, ${fraction(risk)} likely to run out` : "";
  return `${room} of ${bytes(memory.usable_bytes)} on each of ${count(resolved.cluster.gpus)} ${kind} ${machine}${doubt}`;
}

function degrees({ resolved: { layout, recipe } }) {
  const replicas = `${count(layout.data)} ${layout.data === 1 ? "replica" : "replicas"}`;
  const accumulation = recipe.global_batch / (recipe.micro_batch * layout.data);
  return `${replicas} of ${layout.tensor * layout.pipeline * layout.context} GPUs, ${count(accumulation)} micro-batches a step`;
}

/** The verdict and the figures. */
export function showVerdict(answer) {
  place("verdict").className = answer.verdict;
  place("verdict-word").textContent = WORDS[answer.verdict];
  place("verdict-text").textContent = sentence(answer);
  place("degrees").textContent = degrees(answer);
  const { total, active } = answer.parameters;
  const sparse = active < total ? [", ", number("parameters.active", active, { write: short }), " active"] : [];
  place("parameters").replaceChildren(number("parameters.total", total, { write: short }), " parameters", ...sparse);
  place("figures").replaceChildren(
    ...FIGURES.map(([label, path, write]) =>
      element(
        "div",
        { class: "figure" },
        element("dt", {}, label),
        element("dd", {}, interval(path, at(answer, path), write ? { write } : {})),
      ),
    ),
  );
  const tips = answer.memory.suggestions.map((text) => element("li", {}, text));
  place("tips").replaceChildren(
    ...(tips.length ? [element("h3", {}, "What would help"), element("ul", {}, tips)] : []),
  );
  const lists = [...answer.warnings.map((text) => element("li", { class: "warning" }, text))];
  place("warnings").replaceChildren(...lists);
  place("assumptions").replaceChildren(...answer.assumptions.map((text) => element("li", {}, text)));
}

/** What is wrong with the question, and what to do. */
export function showRefusal(refusal) {
  place("verdict").className = "refused";
  place("verdict-word").textContent = "No answer";
  const told = refusal.problems.map(({ message, fix }) => `${message}; ${fix}`);
  place("verdict-text").textContent = told.length ? told.join(". ") : refusal.message;
}
