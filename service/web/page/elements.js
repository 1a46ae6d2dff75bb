// How is a piece of the page made? Text always goes in as text, never as markup.

const NAMESPACE = new Set(["class", "for", "role", "type", "id", "name", "href", "list", "min", "max", "step"]);

/** An element with attributes (on… listens, aria-… and the like are set, the rest are properties) and children. */
export function element(name, given = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.includes("-") || NAMESPACE.has(key)) node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** The element of the page with this id. */
export const place = (id) => document.getElementById(id);

/** A table that scrolls sideways where it has no room; its leading columns hold words, the others numbers. */
export function table(caption, heads, rows, leading = 1) {
  const side = (i) => (i < leading ? "words" : null);
  const head = heads.map((text, i) => element("th", { scope: "col", class: side(i) }, text));
  const body = rows.map((cells) =>
    element(
      "tr",
      {},
      cells.map((cell, i) => element(i ? "td" : "th", { class: side(i), scope: i ? null : "row" }, cell)),
    ),
  );
  const whole = element(
    "table",
    { class: "figures" },
    element("caption", { class: "unseen" }, caption),
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, body),
  );
  return element("div", { class: "scroll", role: "region", tabIndex: 0, "aria-label": caption }, whole);
}

/** What is told while something is worked out, and what went wrong. */
export const note = (text, kind = "quiet") => element("p", { class: kind }, text);

/** Hand the reader a file. */
export function download(name, content, type = "text/plain") {
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
