// Which part of the answer is looked at? Tabs as the keyboard expects them; the open one stands in the address.

import { asked, change, whenChanged } from "./asked.js";
import { element, place } from "./elements.js";

/** Views {name, title, show(panel)}: one is shown, and shown anew when the question changes. */
export function build(views, changed) {
  const tabs = views.map(({ name, title }) => tabOf(name, title));
  place("tabs").append(...tabs);
  place("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const here = views.findIndex(({ name }) => name === open(views));
    const there =
      { Home: 0, End: views.length - 1 }[event.key] ?? (step ? (here + step + views.length) % views.length : -1);
    if (there < 0) return;
    event.preventDefault();
    change({ view: views[there].name });
    tabs[there].focus();
  });
  whenChanged((names) => show(views, names, changed));
}

const open = (views) => (views.some(({ name }) => name === asked.view) ? asked.view : views[0].name);

const tabOf = (name, title) =>
  element(
    "button",
    {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      "aria-controls": `view-${name}`,
      onclick: () => change({ view: name }),
    },
    title,
  );

function show(views, names, changed) {
  for (const { name } of views) {
    const selected = name === open(views);
    place(`tab-${name}`).setAttribute("aria-selected", String(selected));
    place(`tab-${name}`).tabIndex = selected ? 0 : -1;
    place(`view-${name}`).hidden = !selected;
  }
  changed(
    views.find(({ name }) => name === open(views)),
    names,
  );
}
