// View 3: the waves that tell places apart, and a model without them (claims M12 to M15).

import { html, lines, matrix, number } from "./drawing.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const NUM_POSITIONS = 50;

/** Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same. */
export function sinusoids(numPositions, width) {
  return Array.from({ length: numPositions }, (_, position) =>
    Array.from({ length: width }, (_, dimension) => {
      const angle = position / 10000 ** ((dimension - (dimension % 2)) / width);
      return dimension % 2 ? Math.cos(angle) : Math.sin(angle);
    }),
  );
}

const dot = (one, other) => one.reduce((sum, value, n) => sum + value * other[n], 0);

function waves(table, width) {
  const pair = Math.min(Number(state.pair), width / 2 - 1);
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

function likeness(table) {
  const middle = Math.floor(table.length / 2);
  const from = table[middle];
  const points = table.map((row, position) => [position - middle, dot(from, row)]);
  return {
    points,
    node: html(
      "section",
      { class: "card" },
      html("h3", {}, t("positions.dot")),
      html("p", { class: "soft" }, t("positions.dot.why")),
      lines({ curves: [{ name: "PE(p)·PE(p+k)", points }], label: t("positions.dot"), axis: "k", at: 0 }),
    ),
  };
}

function without(look, ask, later, numbers) {
  const compare = answer => {
    numbers.without_positions = { translation: answer.search.hypotheses[0].text, log_prob: answer.log_prob };
    return html(
      "dl",
      { class: "versus" },
      html("dt", {}, t("positions.with")),
      html("dd", { dir: "auto" }, look.target.text, html("small", {}, `log P = ${number(look.log_prob, 2)}`)),
      html("dt", {}, t("positions.without")),
      html(
        "dd",
        { dir: "auto", "data-log-prob": answer.log_prob, "data-text": answer.search.hypotheses[0].text },
        answer.search.hypotheses[0].text || "–",
        html("small", {}, t("positions.own", { log: number(answer.log_prob, 2) })),
      ),
    );
  };
  const isOff = state.positions === "off";
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("positions.switch")),
    html("p", { class: "soft" }, t("positions.switch.why")),
    html(
      "label",
      { class: "switch" },
      html("input", {
        type: "checkbox",
        role: "switch",
        checked: !isOff,
        "data-key": "positions",
        onchange: event => set({ positions: event.target.checked ? "on" : "off" }),
      }),
      t("positions.add"),
    ),
    isOff
      ? later(ask({ target: look.target.text, prefix: undefined, positions: false }), compare)
      : html("p", { class: "big", dir: "auto" }, look.target.text),
  );
}

export function draw(body, { look, model, ask, later }) {
  const width = model.model.d_model;
  const isLearned = model.model.positions === "learned";
  const table = isLearned ? look.positions : sinusoids(Math.max(NUM_POSITIONS, look.source.pieces.length + 1), width);
  const high = Math.max(...table.flat().map(Math.abs));
  const { points, node } = likeness(table);
  const numbers = { kind: model.model.positions, table, dot_products: points };
  const figure = matrix({
    values: table,
    rows: table.map((_, n) => String(n)),
    columns: table[0].map((_, n) => String(n)),
    label: t("positions.table"),
    cell: Math.max(2, Math.min(5, 640 / width)),
    diverging: true,
    high,
    fits: true,
    tell: (row, column, value) => `pos ${row}, ${t("positions.dimension", { n: column })}: ${number(value, 4)}`,
  });
  body.append(
    html(
      "section",
      { class: "card wide" },
      html("h3", {}, t("positions.table")),
      html(
        "p",
        { class: "soft" },
        t(isLearned ? "positions.learned" : "positions.table.why", {
          last: table.length - 1,
          positions: table.length,
          width,
        }),
      ),
      figure,
    ),
    html("div", { class: "columns" }, isLearned ? "" : waves(table, width), node),
    without(look, ask, later, numbers),
  );
  return numbers;
}
