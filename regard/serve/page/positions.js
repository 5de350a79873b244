// View 3: the positional encodings, and the model without them (claims M12 to M15).

import { html, lines, matrix, number, onOff } from "./drawing.js";
import { hasPositions } from "./kinds.js";
import { set, state, within } from "./state.js";
import { dot, largest } from "./vectors.js";
import { versus } from "./without.js";
import { t, tOf } from "./words.js";

const NUM_POSITIONS = 50;

/** Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same. */
function sinusoids(numPositions, width) {
  return Array.from({ length: numPositions }, (_, position) =>
    Array.from({ length: width }, (_, dimension) => {
      const angle = position / 10000 ** ((dimension - (dimension % 2)) / width);
      return dimension % 2 ? Math.cos(angle) : Math.sin(angle);
    }),
  );
}

function waves(table, width) {
  const pair = within(state.pair, width / 2 - 1);
  const curve = (name, dimension) => ({ name, points: table.map((row, position) => [position, row[dimension]]) });
  const place = html("div");
  const tell = n =>
    place.replaceChildren(
      html(
        "p",
        { class: "formula" },
        `sin(pos / 10000^(${2 * n}/${width})) · ${t("positions.length", { length: number(2 * Math.PI * 10000 ** ((2 * n) / width), 1) })}`,
      ),
      lines({
        curves: [
          curve(t("positions.dimension", { n: 2 * n }), 2 * n),
          curve(t("positions.dimension", { n: 2 * n + 1 }), 2 * n + 1),
        ],
        label: t("positions.wave"),
        axis: "pos",
      }),
    );
  const slider = html("input", {
    type: "range",
    min: 0,
    max: width / 2 - 1,
    value: pair,
    "data-key": "pair",
    "aria-label": t("positions.wave"),
    oninput: event => tell(Number(event.target.value)),
    onchange: event => set({ pair: event.target.value }),
  });
  tell(pair);
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("positions.wave")),
    html("label", { class: "slider" }, slider, html("span", {}, "i")),
    place,
  );
}

function likeness(table, isLearned) {
  const middle = Math.floor(table.length / 2);
  const from = table[middle];
  const points = table.map((row, position) => [position - middle, dot(from, row)]);
  return {
    points,
    node: html(
      "section",
      { class: "card" },
      html("h3", {}, t("positions.dot")),
      html("p", { class: "soft" }, t(isLearned ? "positions.learned.why" : "positions.dot.why")),
      lines({ curves: [{ name: isLearned ? "P(p)·P(p+k)" : "PE(p)·PE(p+k)", points }], label: t("positions.dot"), axis: "k", at: 0 }),
    ),
  };
}

function without({ look, askSame, later }, numbers) {
  const compare = answer => {
    numbers.without_positions = { translation: answer.search.hypotheses[0].text, log_prob: answer.log_prob };
    return versus(look, answer, t("positions.with"), t("positions.without"));
  };
  const isOff = state.positions === "off";
  const change = event => set({ positions: event.target.checked ? "on" : "off" });
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("positions.switch")),
    html("p", { class: "soft" }, t("positions.switch.why")),
    onOff(!isOff, { "data-key": "positions", onchange: change }, t("positions.add")),
    isOff
      ? later(askSame({ positions: false }), compare)
      : html("p", { class: "big", dir: "auto" }, look.target.text || "–"),
  );
}

/** Explain why the model has no positional encodings. */
function none(body, { look, model: { model } }) {
  const told = tOf("positions.none", model, { n: (look?.source.pieces.length ?? 0) + 1 });
  body.append(html("section", { class: "card wide" }, html("h3", {}, t("positions.none.title")), html("p", {}, told)));
  return { kind: "none" };
}

/** Draw the view. Sinusoids need no sentence; learned positions come with the answer for one. */
export function draw(body, context) {
  const { look } = context;
  const { d_model: width, positions: kind } = context.model.model;
  if (!hasPositions(context.model.model)) return none(body, context);
  const isLearned = kind === "learned";
  if (isLearned && !look) return void body.append(html("p", { class: "soft" }, t("nothing")));
  const length = Math.max(NUM_POSITIONS, (look?.source.pieces.length ?? 0) + 1);
  const table = isLearned ? look.positions : sinusoids(length, width);
  const { points, node } = likeness(table, isLearned);
  const numbers = { kind, table, dot_products: points };
  const figure = matrix({
    values: table,
    rows: table.map((_, n) => String(n)),
    columns: table[0].map((_, n) => String(n)),
    label: t("positions.table"),
    cell: Math.max(2, Math.min(5, 640 / width)),
    diverging: true,
    high: largest(table),
    fits: true,
    tell: (row, column, value) => `pos ${row}, ${t("positions.dimension", { n: column })}: ${number(value, 4)}`,
  });
  const facts = { last: table.length - 1, positions: table.length, width };
  body.append(
    html(
      "section",
      { class: "card wide" },
      html("h3", {}, t("positions.table")),
      html("p", { class: "soft" }, t(isLearned ? "positions.learned" : "positions.table.why", facts)),
      figure,
    ),
    html("div", { class: "columns" }, isLearned ? "" : waves(table, width), node),
    look ? without(context, numbers) : "",
  );
  return numbers;
}
