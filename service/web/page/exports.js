// How does the launcher want it? The question as each tool's own file, with what the file cannot say.

import { asked } from "./asked.js";
import { download, element, note, place } from "./elements.js";
import { bodyOf } from "./question.js";
import { get, latest, post, toldBy } from "./service.js";

const KINDS = { training: "Training software", launcher: "Launchers" };

let tools = null;
let chosen = null;
let allowed = null;

function buttons() {
  const made = ({ target, tool }) =>
    element(
      "button",
      {
        type: "button",
        class: "tool",
        id: `export-${target}`,
        "aria-pressed": String(target === chosen),
        onclick: () => {
          chosen = target;
          allowed = null;
          ask(true);
        },
      },
      tool,
    );
  return Object.entries(KINDS).map(([kind, title]) =>
    element(
      "div",
      { class: "tools", role: "group", "aria-label": title },
      element("span", { class: "quiet" }, title),
      tools.filter((tool) => tool.kind === kind).map(made),
    ),
  );
}

/** What changes with other training software, or with what the file does not hold. */
function effect({ before, after, why }) {
  if (!after) return `does not run: ${why}`;
  const times = (one, other) => `${(one / other).toPrecision(3)} ×`;
  const memory = times(after.device_peak_bytes, before.device_peak_bytes);
  return `${memory} the memory, ${times(before.tokens_per_s_per_gpu, after.tokens_per_s_per_gpu)} the cost`;
}

function file(found) {
  const lost = found.not_expressible.map((one) => element("li", {}, `${one.field}: ${one.message}`));
  const { stack_change: change, loss } = found;
  const effects = [
    change && `With ${change.written} instead of ${change.asked}, the job: ${effect(change)}.`,
    loss && `By what the file does not hold (${loss.fields.join(", ")}), the job: ${effect(loss)}.`,
  ];
  return [
    element(
      "p",
      {},
      element(
        "button",
        {
          type: "button",
          class: "main",
          id: "export-save",
          onclick: () => download(found.file_name, found.content),
        },
        `Download ${found.file_name}`,
      ),
    ),
    ...effects.filter(Boolean).map((text) => element("p", { class: "quiet" }, text)),
    ...(lost.length ? [element("h3", {}, "What this file cannot say"), element("ul", {}, lost)] : []),
    element("pre", { tabIndex: 0, id: "export-file", "aria-label": found.file_name }, found.content),
  ];
}

/** The refusal of a file, with a button that has it written all the same where that may be. */
function refusal(error) {
  const isLoss = (error.problems ?? []).some((one) => one.code === "loses_too_much");
  const again = () => {
    allowed = chosen;
    ask(true);
  };
  const button = element("button", { type: "button", id: "export-allow", onclick: again }, "Write it all the same");
  return [note(toldBy(error), "fault"), ...(isLoss ? [button] : [])];
}

const ask = latest(async () => {
  try {
    tools ??= (await get("/v1/exports")).items;
    place("export-tools").replaceChildren(...buttons());
    place("export-body").textContent = JSON.stringify(bodyOf(asked), null, 1);
    const query = allowed === chosen ? "?allow_loss=true" : "";
    if (chosen) place("export").replaceChildren(...file(await post(`/v1/exports/${chosen}${query}`, bodyOf(asked))));
  } catch (error) {
    place("export").replaceChildren(...refusal(error));
  }
});

/** The view of files. */
export const view = { name: "export", title: "Export", build() {}, show: () => ask(true) };
