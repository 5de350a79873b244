// View 1: the model drawn from its own configuration, with this sentence's shapes on its arrows.

import { chosenBlock } from "./blocks.js";
import { html, whole } from "./drawing.js";
import { isRecurrent } from "./kinds.js";
import * as recurrence from "./recurrence.js";
import { set, state } from "./state.js";
import * as transformer from "./transformer.js";
import { t } from "./words.js";

function panel(architecture, model, look, described) {
  const { name, formula, words, open } = architecture.about(chosenBlock(model), model, look);
  const parameters = whole(Object.values(described.parameters).reduce((sum, one) => sum + one, 0));
  return html(
    "section",
    { class: "card panel", "data-block": chosenBlock(model) },
    html("h3", {}, name),
    html("p", { class: "formula" }, formula),
    html("p", {}, words),
    html("button", { "data-key": "open", onclick: () => set(open) }, t("map.open", { view: t(`${open.view}.title`) })),
    html("p", { class: "soft" }, architecture.summary(model, parameters)),
  );
}

let opened = state.block;

export function draw(body, { look, model: described }) {
  const { model } = described;
  const architecture = isRecurrent(model) ? recurrence : transformer;
  body.append(
    html(
      "div",
      { class: "with-panel" },
      html("div", { class: "card scroll", "data-scroll": "map" }, architecture.figure(model, look)),
      panel(architecture, model, look, described),
    ),
  );
  if (opened !== state.block)
    requestAnimationFrame(() => body.querySelector(".panel")?.scrollIntoView({ block: "nearest" })); // it may be off-screen
  opened = state.block;
  return { ...described, shapes: architecture.shapes(model, look) };
}
