// A stacked bar: what it is made of, and where the line stands that it should not cross.

import { element } from "./elements.js";
import { LABELS, familyOf, shadeOf } from "./kinds.js";
import { words } from "./numbers.js";

/** What a kind is called. */
export const called = (kind) => LABELS[kind] ?? words(kind);

const coloured = (table, kind) => `${table}-${familyOf(table, kind)} shade-${shadeOf(table, kind)}`;

/** A small square of a kind's colour. */
export const swatch = (table, kind) =>
  element("span", { class: `swatch ${coloured(table, kind)}`, "aria-hidden": "true" });

/** A bar of parts {kind, amount}: its scale, what it says to those who do not see it, and a line to stay below. */
export function bar(table, parts, { scale, label, write, line = null }) {
  const pieces = parts
    .filter(({ amount }) => amount > 0)
    .map(({ kind, amount }) => {
      const title = `${called(kind)}: ${write(amount)}`;
      const piece = element("span", { class: `piece ${coloured(table, kind)}`, title });
      piece.style.width = `${(100 * amount) / scale}%`;
      return piece;
    });
  const whole = element("div", { class: "bar", role: "img", "aria-label": label }, pieces);
  if (line !== null) {
    const mark = element("span", { class: "line" });
    mark.style.left = `${(100 * line) / scale}%`;
    whole.append(mark);
  }
  return whole;
}
