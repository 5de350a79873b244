// View 4: the masks of padding and of later positions, and the effect of removing the causal mask (claims M6, M8, M9).

import { html, matrix, number, onOff, textOf } from "./drawing.js";
import { hasCausalMask, isRecurrent } from "./kinds.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { named, t, tOf } from "./words.js";

const NUM_PADS = 3;
const table = (rows, columns, isOpen) =>
  Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => (isOpen(row, column) ? 1 : 0)));

function one(title, why, rows, columns, values, cell) {
  const tell = (row, column, value) => t(value ? "masks.may" : "masks.may-not", { row: rows[row], column: columns[column] });
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t(title)),
    html("p", { class: "soft" }, why),
    matrix({ values, rows, columns, label: t(title), tell, cell }),
  );
}

/** Replace the last subword by the first, or drop it if they are the same. */
function otherEnding(pieces) {
  const rest = pieces.slice(0, -1);
  return rest.length && pieces[0] !== pieces.at(-1) ? [...rest, pieces[0]] : rest;
}

/** Compare the probabilities of the words before the ending, under the two endings. */
function beginnings(before, after) {
  const { pieces } = before.target;
  const others = after.target.pieces;
  const parting = pieces.findIndex((piece, n) => piece !== others[n]);
  return pieces.slice(0, parting < 0 ? pieces.length : parting).map((piece, n) => ({
    piece,
    log_prob: before.predictions[n].log_prob,
    other: after.predictions[n].log_prob,
    best: before.predictions[n].best[0].piece,
  }));
}

const changeOf = one => one.other - one.log_prob;
const largestChange = places => Math.max(0, ...places.map(one => Math.abs(changeOf(one))));

/** Draw the comparison with the mask and, if it is switched off, without. A model that has no mask is shown as it is. */
function tableOf(sides, model) {
  const cells = one => {
    const moved = html("td", { class: "number tinted" }, number(changeOf(one), 4));
    moved.style.setProperty("--share", `${Math.min(100, Math.round(60 * Math.abs(changeOf(one)) ** 0.5))}%`);
    return [html("td", {}, named(one.best)), html("td", { class: "number" }, number(one.log_prob, 4)), moved];
  };
  const words = ["masks.best", "masks.log", "masks.change"];
  const titles = [tOf("masks.on", model), t("masks.off")];
  const heads = sides.map((_, n) => html("th", { class: "number", colspan: 3 }, titles[n]));
  const kinds = ["masks.word", ...sides.flatMap(() => words)];
  return html(
    "table",
    { "data-kept": largestChange(sides[0]), "data-open": sides[1] && largestChange(sides[1]) },
    html(
      "thead",
      {},
      html("tr", {}, html("th", {}, ""), heads),
      html(
        "tr",
        {},
        kinds.map((word, n) => html("th", { class: n % 3 === 1 || !n ? "" : "number" }, t(word))),
      ),
    ),
    html(
      "tbody",
      {},
      sides[0].map((one, n) =>
        html(
          "tr",
          {},
          html("td", {}, named(one.piece)),
          sides.flatMap(side => cells(side[n])),
        ),
      ),
    ),
  );
}

function compared([kept, keptOther, ...open], model, numbers) {
  const own = beginnings(kept, keptOther);
  const largest = { kept: number(largestChange(own), 4) };
  if (!open.length) {
    Object.assign(numbers, { common: own.length, as_it_is: own });
    return [html("div", { class: "scroll" }, tableOf([own], model)), html("p", {}, tOf("masks.result", model, largest))];
  }
  const sides = [own, beginnings(...open)];
  Object.assign(numbers, { common: own.length, with_mask: own, without_mask: sides[1] });
  const isOff = state.causal === "off";
  const told = { ...largest, open: number(largestChange(sides[1]), 4) };
  return [
    html("div", { class: "scroll" }, tableOf(isOff ? sides : [own], model)),
    html("p", {}, t(isOff ? "masks.result" : "masks.result.on", told)),
  ];
}

function causalSwitch() {
  const change = event => set({ causal: event.target.checked ? "on" : "off" });
  return onOff(state.causal !== "off", { "data-key": "causal", onchange: change }, t("masks.switch"));
}

function experiment({ look, ask, later, model: { model } }, numbers) {
  const own = { target: undefined, target_pieces: look.target.pieces };
  const pieces = otherEnding(look.target.pieces);
  const other = state.later
    ? { target: state.later, target_pieces: undefined }
    : { target: undefined, target_pieces: pieces };
  const short = { prefix: undefined, prefix_pieces: undefined, beam: 1 };
  const input = html("input", {
    type: "text",
    value: other.target ?? textOf(pieces),
    "data-key": "later",
    dir: "auto",
    disabled: source.isFile,
    "aria-label": t("masks.other"),
    onchange: event => set({ later: event.target.value.trim() }),
  });
  const masks = hasCausalMask(model) ? [true, false] : [true];
  const questions = masks.flatMap(causal => [own, other].map(target => ({ ...short, ...target, causal })));
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("masks.experiment")),
    html("p", { class: "soft" }, tOf("masks.experiment.why", model)),
    hasCausalMask(model) && causalSwitch(),
    html(
      "dl",
      { class: "versus" },
      html("dt", {}, t("target")),
      html("dd", { dir: "auto" }, look.target.text),
      html("dt", {}, t("masks.other")),
      html("dd", {}, input),
    ),
    later(Promise.all(questions.map(ask)), answers => compared(answers, model, numbers)),
  );
}

/** Draw the padding mask of an RNN's attention to the source. */
function recurrentMasks({ sources, inputs, model: { model } }) {
  const padded = [...sources, ...Array(NUM_PADS).fill("<pad>")];
  if (model.kind !== "rnn-attention") return {};
  const padding = table(inputs.length, padded.length, (_, column) => column < sources.length);
  const why = tOf("masks.padding.why", model, { pads: NUM_PADS });
  return { padding, node: one("masks.padding", why, inputs, padded, padding) };
}

function transformerMasks({ sources, inputs, model: { model } }) {
  const pads = Array(NUM_PADS).fill("<pad>");
  const padded = [...sources, ...pads];
  const paddedInputs = [...inputs, ...pads];
  const isOff = state.causal === "off" || !hasCausalMask(model);
  const size = inputs.length;
  const padding = table(padded.length, padded.length, (_, column) => column < sources.length);
  const causal = table(size, size, (row, column) => isOff || column <= row);
  const both = table(paddedInputs.length, paddedInputs.length, (row, column) => (isOff || column <= row) && column < size);
  const cell = Math.max(10, Math.min(20, 190 / Math.max(padded.length, paddedInputs.length))); // for all three pictures
  const why = tOf(state.causal === "off" && hasCausalMask(model) ? "masks.causal.off" : "masks.causal.why", model);
  const node = html(
    "div",
    { class: "columns three" },
    one("masks.padding", t("masks.padding.why", { pads: NUM_PADS }), padded, padded, padding, cell),
    one("masks.causal", why, inputs, inputs, causal, cell),
    one("masks.both", tOf("masks.both.why", model), paddedInputs, paddedInputs, both, cell),
  );
  return { padding, causal, both, node };
}

export function draw(body, context) {
  const { node, ...numbers } = (isRecurrent(context.model.model) ? recurrentMasks : transformerMasks)(context);
  const isEmpty = !context.look.target.pieces.length;
  const none = node ? "" : html("p", { class: "soft" }, t("subwords.empty"));
  body.append(node ?? "", isEmpty ? none : experiment(context, numbers));
  return numbers;
}
