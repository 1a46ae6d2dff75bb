// What fills the memory of every stage, against what the device has?

import { element, place, table } from "./elements.js";
import { bar, called, swatch } from "./bars.js";
import { number } from "./explanations.js";
import { ordered } from "./kinds.js";
import { bytes, fraction } from "./numbers.js";

let chosen = null;

/** What a stage holds at its peak, with what the allocator and the driver hold beside it. */
function partsOf(stage, memory) {
  const beside = memory.device_peak_bytes.value - memory.reserved_peak_bytes.value;
  const holes = stage.reserved_peak_bytes - stage.allocated_peak_bytes;
  const place = `memory.stages.${stage.stage}`;
  const lines = stage.lines.map(({ kind, bytes: amount }) => ({ kind, amount, path: `${place}.lines.${kind}.bytes` }));
  return ordered("memory", [
    ...lines,
    { kind: "allocator_holes", amount: holes, path: `${place}.reserved_peak_bytes` },
    { kind: "driver", amount: beside, path: "memory.device_peak_bytes.value" },
  ]);
}

const sum = (parts) => parts.reduce((total, { amount }) => total + amount, 0);

function stageRow(stage, memory, scale, answer) {
  const parts = partsOf(stage, memory);
  const total = sum(parts);
  const said = parts.map(({ kind, amount }) => `${called(kind)} ${bytes(amount)}`).join(", ");
  const label = `Stage ${stage.stage}: ${bytes(total)} of ${bytes(memory.usable_bytes)} usable; ${said}`;
  const choose = () => {
    chosen = stage.stage;
    showMemory(answer);
    place(`stage-${stage.stage}`).focus();
  };
  const pressed = { "aria-pressed": String(stage.stage === shownStage(memory).stage), onclick: choose };
  const name = element("button", { type: "button", class: "stage", id: `stage-${stage.stage}`, ...pressed });
  name.textContent = `Stage ${stage.stage}`;
  const drawn = bar("memory", parts, { scale, label, write: bytes, line: memory.usable_bytes });
  const path = `memory.stages.${stage.stage}.reserved_peak_bytes`;
  const over = total > memory.usable_bytes ? "total over" : "total";
  return element("div", { class: "row" }, name, drawn, element("span", { class: over }, number(path, total)));
}

const shownStage = (memory) => memory.stages.find(({ stage }) => stage === chosen) ?? memory.stages[memory.peak_stage];

function linesOf(stage, memory) {
  const parts = partsOf(stage, memory);
  const total = sum(parts);
  const rows = parts.map(({ kind, amount, path }) => [
    element("span", {}, swatch("memory", kind), called(kind)),
    number(path, amount),
    fraction(amount / total),
  ]);
  const peak = number(`memory.stages.${stage.stage}.allocated_peak_bytes`, stage.allocated_peak_bytes);
  const heading = [`Stage ${stage.stage}, ${stage.layers} layers: `, peak, ` live at its peak, in ${stage.peak_phase}`];
  return [
    element("p", { class: "about" }, heading),
    table(`Memory of stage ${stage.stage} by kind`, ["Kind", "Bytes", "Share"], rows),
  ];
}

/** The bars of all stages, and the table of the one that is chosen. */
export function showMemory(answer) {
  const { memory } = answer;
  const totals = memory.stages.map((stage) => sum(partsOf(stage, memory)));
  const scale = Math.max(memory.usable_bytes, ...totals) * 1.03;
  const rows = memory.stages.map((stage) => stageRow(stage, memory, scale, answer));
  const usable = element(
    "p",
    { class: "usable" },
    "usable on each GPU: ",
    number("memory.usable_bytes", memory.usable_bytes),
  );
  place("stages").replaceChildren(...rows);
  place("stages").dataset.answer = answer.id;
  place("stage-lines").replaceChildren(...linesOf(shownStage(memory), memory));
  place("usable").replaceChildren(usable);
}
