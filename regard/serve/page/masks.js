// View 4: what may not be seen, and what happens to earlier words when later ones are (claims M6, M8, M9).

import { bare, html, matrix, number } from "./drawing.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const NUM_PADS = 3;
const table = (rows, columns, isOpen) =>
  Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => (isOpen(row, column) ? 1 : 0)));

function one(title, why, rows, columns, values) {
  const tell = (row, column, value) => t(value ? "masks.may" : "masks.may-not", { row: rows[row], column: columns[column] });
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t(title)),
    html("p", { class: "soft" }, t(why, { pads: NUM_PADS })),
    matrix({
      values,
      rows,
      columns,
      label: t(title),
      tell,
      fits: true,
      cell: Math.max(7, Math.min(20, 300 / columns.length)),
    }),
  );
}

/** The last word said otherwise. */
function otherEnding(text) {
  const words = text.trim().split(/\s+/);
  return words.length > 1 ? [...words.slice(0, -1), words[0].toLowerCase()].join(" ") : `${text} ${text}`;
}

function compared([kept, keptOther, open, openOther], numbers) {
  const pieces = kept.target.pieces;
  const others = keptOther.target.pieces;
  let common = pieces.findIndex((piece, n) => piece !== others[n]);
  if (common < 0) common = pieces.length;
  const change = (before, after, n) => after.predictions[n].log_prob - before.predictions[n].log_prob;
  const most = (before, after) => Math.max(0, ...pieces.slice(0, common).map((_, n) => Math.abs(change(before, after, n))));
  numbers.common = common;
  numbers.with_mask = pieces
    .slice(0, common)
    .map((piece, n) => ({ piece, log_prob: kept.predictions[n].log_prob, other: keptOther.predictions[n].log_prob }));
  numbers.without_mask = pieces
    .slice(0, common)
    .map((piece, n) => ({ piece, log_prob: open.predictions[n].log_prob, other: openOther.predictions[n].log_prob }));
  const cell = (before, after, n) => {
    const moved = change(before, after, n);
    const node = html("td", { class: "number tinted" }, number(moved, 4));
    node.style.setProperty("--share", `${Math.min(100, Math.round(60 * Math.abs(moved) ** 0.5))}%`);
    return node;
  };
  const rows = pieces
    .slice(0, common)
    .map((piece, n) =>
      html(
        "tr",
        {},
        html("td", {}, bare(piece) || "␣"),
        html("td", { class: "number" }, number(kept.predictions[n].log_prob, 4)),
        cell(kept, keptOther, n),
        html("td", { class: "number" }, number(open.predictions[n].log_prob, 4)),
        cell(open, openOther, n),
      ),
    );
  return [
    html(
      "div",
      { class: "scroll" },
      html(
        "table",
        { "data-kept": most(kept, keptOther), "data-open": most(open, openOther) },
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            html("th", {}, ""),
            html("th", { class: "number", colspan: 2 }, t("masks.on")),
            html("th", { class: "number", colspan: 2 }, t("masks.off")),
          ),
          html(
            "tr",
            {},
            ["masks.word", "masks.log", "masks.change", "masks.log", "masks.change"].map((word, n) =>
              html("th", { class: n ? "number" : "" }, t(word)),
            ),
          ),
        ),
        html("tbody", {}, rows),
      ),
    ),
    html("p", {}, t("masks.result", { kept: number(most(kept, keptOther), 4), open: number(most(open, openOther), 4) })),
  ];
}

function experiment(look, ask, later, numbers) {
  const other = state.later || otherEnding(look.target.text);
  const short = { prefix: undefined, beam: 1 };
  const input = html("input", {
    type: "text",
    value: other,
    "data-key": "later",
    dir: "auto",
    disabled: source.isFile,
    "aria-label": t("masks.other"),
    onchange: event => set({ later: event.target.value.trim() }),
  });
  const all = Promise.all(
    [true, false].flatMap(causal => [look.target.text, other].map(target => ask({ ...short, target, causal }))),
  );
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("masks.experiment")),
    html("p", { class: "soft" }, t("masks.experiment.why")),
    html(
      "dl",
      { class: "versus" },
      html("dt", {}, t("target")),
      html("dd", { dir: "auto" }, look.target.text),
      html("dt", {}, t("masks.other")),
      html("dd", {}, input),
    ),
    later(all, answers => compared(answers, numbers)),
  );
}

export function draw(body, { look, sources, inputs, ask, later }) {
  const padded = [...sources, ...Array(NUM_PADS).fill("<pad>")];
  const paddedInputs = [...inputs, ...Array(NUM_PADS).fill("<pad>")];
  const size = inputs.length;
  const padding = table(padded.length, padded.length, (_, column) => column < sources.length);
  const causal = table(size, size, (row, column) => column <= row);
  const both = table(paddedInputs.length, paddedInputs.length, (row, column) => column <= row && column < size);
  const numbers = { padding, causal, both };
  body.append(
    html(
      "div",
      { class: "columns three" },
      one("masks.padding", "masks.padding.why", padded, padded, padding),
      one("masks.causal", "masks.causal.why", inputs, inputs, causal),
      one("masks.both", "masks.both.why", paddedInputs, paddedInputs, both),
    ),
    experiment(look, ask, later, numbers),
  );
  return numbers;
}
