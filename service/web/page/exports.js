// How does the launcher want it? The question as each tool's own file, with what the file cannot say.

import { asked } from "./asked.js";
import { download, element, note, place } from "./elements.js";
import { bodyOf } from "./question.js";
import { get, latest, post, toldBy } from "./service.js";

const KINDS = { training: "Training software", launcher: "Launchers" };

let tools = null;
let chosen = null;

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

function file(found) {
  const lost = found.not_expressible.map((one) =>
    element("li", {}, `${one.field}: ${one.reason ?? one.message ?? ""}`),
  );
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
    ...(lost.length ? [element("h3", {}, "What this file cannot say"), element("ul", {}, lost)] : []),
    element("pre", { tabIndex: 0, id: "export-file", "aria-label": found.file_name }, found.content),
  ];
}

const ask = latest(async () => {
  try {
    tools ??= (await get("/v1/exports")).items;
    place("export-tools").replaceChildren(...buttons());
    place("export-body").textContent = JSON.stringify(bodyOf(asked), null, 1);
    if (chosen) place("export").replaceChildren(...file(await post(`/v1/exports/${chosen}`, bodyOf(asked))));
  } catch (error) {
    place("export").replaceChildren(note(toldBy(error), "fault"));
  }
});

/** The view of files. */
export const view = { name: "export", title: "Export", build() {}, show: () => ask(true) };
