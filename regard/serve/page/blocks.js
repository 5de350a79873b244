// What maps are drawn with: blocks that tell about themselves when they are chosen, and arrows with shapes on them.

import { svg } from "./drawing.js";
import { set, state } from "./state.js";

export const WIDE = 230;
export const TALL = 42;
export const GAP = 30;

/** The one of the address; of itself, where the decoder meets the source. */
export const chosenBlock = model => state.block || (model.kind === "rnn" ? "fixed.decoder" : "cross.decoder");

/** An id is a kind, a stack and, where there are several, a number. */
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

/** A box with its name, and what happens inside it, around the middle x. */
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

/** What goes into a stack or comes out: a name without a box. */
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

/** Upwards, with what flows there on one side of it. */
export function arrow(x, from, to, label, side = 1) {
  return [
    path(`M${x} ${from}V${to + 6}`),
    label && shape(label, x + 8 * side, (from + to) / 2 + 4, side > 0 ? "start" : "end"),
  ].filter(Boolean);
}

/** As many layers as there are. */
export const times = (layers, x, y, anchor) =>
  svg("text", { class: "times", x, y, "text-anchor": anchor }, `${layers} ×`);

/** The ground for a map, with the tips of its arrows. */
export function ground(label) {
  const tip = { viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" };
  const marker = svg("marker", { id: "tip", ...tip }, svg("path", { class: "tip", d: "M0 0L8 4L0 8z" }));
  return svg("svg", { class: "figure", role: "group", "aria-label": label }, svg("defs", {}, marker));
}
