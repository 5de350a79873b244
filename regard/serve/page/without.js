// Compares the answers of a changed model with those of the unchanged one.

import { html, number } from "./drawing.js";
import { t } from "./words.js";

/** Show the translations found before and after the change, and both probabilities of the inspected translation. */
export function versus(look, answer, before, after) {
  const own = look.search.hypotheses[0];
  const now = answer.search.hypotheses[0];
  return html(
    "dl",
    { class: "versus" },
    html("dt", {}, before),
    html("dd", { dir: "auto" }, own.text || "–", html("small", {}, `log P = ${number(own.log_prob, 3)}`)),
    html("dt", {}, after),
    html(
      "dd",
      { dir: "auto", "data-log-prob": answer.log_prob, "data-text": now.text },
      now.text || "–",
      html("small", {}, now.text === own.text ? t("heads.same") : t("heads.different")),
    ),
    html("dt", {}, t("heads.old")),
    html(
      "dd",
      { dir: "auto" },
      look.target.text === own.text ? "" : html("span", {}, `${look.target.text}: `),
      `${number(look.log_prob, 3)} → ${number(answer.log_prob, 3)}`,
      html("small", {}, t("heads.difference", { change: number(answer.log_prob - look.log_prob, 3) })),
    ),
  );
}
