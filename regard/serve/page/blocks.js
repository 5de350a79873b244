// Elements of the maps: blocks that show their description when chosen, and arrows labelled with tensor shapes.

import { svg } from "./drawing.js";
import { set, state } from "./state.js";

export const WIDE = 230;
export const TALL = 42;
export const GAP = 30;

/** Return the block that the address names; by default, the one through which the decoder sees the source. */
export const chosenBlock = model => state.block || (model.kind === "rnn" ? "fixed.decoder" : "cross.decoder");

/** Draw a block that can be chosen. Its id is a kind, a stack and, if there are several, a number. */
export function block(id, model, look, label, ...children) {
  const open = () => set({ block: id });
  const isChosen = chosenBlock(model) === id;
  return svg(
    "g",
    {
      class: `block ${look}${isChosen ? " chosen" : ""}`,
      tabindex: 0,
      role: "button",
      "aria-pressed": String(isChosen),
      "data-key": `block-${id}`,
      "data-block": id,
      "aria-label": label,
      onclick: open,
      onkeydown: event => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          open();
        }
      },
    },
    children,
  );
}

/** Draw a box centred at x, with its name and its operation. */
export function box(id, model, { x, y, name, inside = "", width = WIDE }) {
  return block(
    id,
    model,
    id.split(".")[0],
    `${name}. ${inside}`,
    svg("rect", { x: x - width / 2, y, width, height: TALL, rx: 8 }),
    svg("text", { x, y: y + (inside ? 18 : 26), "text-anchor": "middle", class: "name" }, name),
    inside && svg("text", { x, y: y + 34, "text-anchor": "middle", class: "inside" }, inside),
  );
}

/** Draw the input or output of a stack: a name without a box. */
export function end(id, model, { x, y, name }) {
  return block(
    id,
    model,
    "plain",
    name,
    svg("rect", { x: x - WIDE / 2, y, width: WIDE, height: 32, rx: 8 }),
    svg("text", { x, y: y + 20, "text-anchor": "middle", class: "name" }, name),
  );
}

export function path(d, look = "") {
  return svg("path", { class: `arrow${look}`, d, "marker-end": "url(#tip)" });
}

export const shape = (label, x, y, anchor = "start") => svg("text", { class: "shape", x, y, "text-anchor": anchor }, label);

/** Draw an arrow upwards, with a label on one side. */
export function arrow(x, from, to, label, side = 1) {
  return [
    path(`M${x} ${from}V${to + 6}`),
    label && shape(label, x + 8 * side, (from + to) / 2 + 4, side > 0 ? "start" : "end"),
  ].filter(Boolean);
}

/** Draw the number of layers. */
export const times = (layers, x, y, anchor) =>
  svg("text", { class: "times", x, y, "text-anchor": anchor }, `${layers} ×`);

/** Make an empty map that defines the arrow tips. */
export function ground(label) {
  const tip = { viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" };
  const marker = svg("marker", { id: "tip", ...tip }, svg("path", { class: "tip", d: "M0 0L8 4L0 8z" }));
  return svg("svg", { class: "figure", role: "group", "aria-label": label }, svg("defs", {}, marker));
}
