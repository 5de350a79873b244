// View 8: every hypothesis that the search went on with, ended or gave up.

import { bare, html, number, svg, textOf } from "./drawing.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const COLUMN = 120;
const ROW = 26;
const BOX = 98;
const TOP = 28;

/** Candidates know the number of their parent among those kept in the step before; here they get to know the parent itself. */
export function linked(steps) {
  let kept = [];
  return steps.map((candidates, step) => {
    const nodes = candidates.map((one, row) => ({ ...one, step, row, from: kept[one.parent] }));
    kept = nodes.filter(node => node.fate === "kept");
    return nodes;
  });
}

const wayTo = node => (node ? [...wayTo(node.from), node] : []);
const textTo = node => textOf(wayTo(node).map(one => (one.piece === "</s>" ? " ■" : one.piece)));

function best(columns, hypothesis) {
  const wanted = hypothesis.pieces.join("\n");
  const ends = columns.flat().filter(node => node.fate === "finished");
  return ends.find(
    node =>
      wayTo(node)
        .map(one => one.piece)
        .join("\n") === wanted,
  );
}

function tell(node) {
  return t("beam.tell", {
    text: textTo(node),
    fate: t(`beam.${node.fate}`),
    log: number(node.log_prob, 3),
    score: number(node.score, 3),
  });
}

function tree(columns, winner, note) {
  const most = Math.max(...columns.map(nodes => nodes.length));
  const width = 46 + COLUMN * columns.length;
  const height = TOP + ROW * most + 12;
  const x = node => 46 + COLUMN * node.step;
  const y = node => TOP + ROW * node.row + ROW / 2;
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "tree",
    role: "group",
    "aria-label": t("beam.tree"),
  });
  const onWay = new Set(wayTo(winner));
  const root = { x: 34, y: TOP + ROW / 2 };
  picture.append(svg("text", { x: 4, y: root.y + 4 }, "<s>"));
  columns.forEach((nodes, step) => picture.append(svg("text", { class: "soft", x: 46 + COLUMN * step, y: 14 }, step + 1)));
  for (const way of [false, true]) {
    columns
      .flat()
      .filter(node => onWay.has(node) === way)
      .forEach(node => {
        const from = node.from ? { x: x(node.from) + BOX, y: y(node.from) } : root;
        const middle = (from.x + x(node)) / 2;
        picture.append(
          svg("path", {
            class: `edge ${node.fate}${way ? " best" : ""}`,
            d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${y(node)} ${x(node)} ${y(node)}`,
          }),
        );
      });
  }
  columns.flat().forEach(node => {
    const label = node.piece === "</s>" ? "■" : bare(node.piece) || "␣";
    const id = `${node.step}.${node.row}`;
    const group = svg(
      "g",
      {
        class: `node ${node.fate}${onWay.has(node) ? " best" : ""}${state.node === id ? " chosen" : ""}`,
        tabindex: 0,
        role: "button",
        "data-key": `node-${id}`,
        "data-log-prob": node.log_prob,
        "data-score": node.score,
        "aria-label": tell(node),
        onpointerenter: () => {
          note.textContent = tell(node);
        },
        onfocus: () => {
          note.textContent = tell(node);
        },
        onclick: () => set({ node: state.node === id ? "" : id }),
        onkeydown: event => {
          if (event.key === "Enter") set({ node: id });
        },
      },
      svg("rect", { x: x(node), y: y(node) - 10, width: BOX, height: 20, rx: 5 }),
      svg("text", { x: x(node) + 6, y: y(node) + 4 }, [...label].length > 7 ? [...label].slice(0, 6).join("") + "…" : label),
      svg(
        "text",
        { class: "amount", x: x(node) + BOX - 5, y: y(node) + 4, "text-anchor": "end" },
        node.score.toFixed(1).replace("-", "−"),
      ),
    );
    picture.append(group);
  });
  return html("div", { class: "scroll", "data-scroll": "tree" }, picture);
}

function control(name, least, most, step) {
  const told = html("output", {}, state[name]);
  return html(
    "label",
    { class: "slider" },
    t(`beam.${name}`),
    html("input", {
      type: "range",
      min: least,
      max: most,
      step,
      value: state[name],
      "data-key": `slider-${name}`,
      disabled: source.isFile,
      oninput: event => {
        told.textContent = event.target.value;
      },
      onchange: event => set({ [name]: event.target.value, node: "" }),
    }),
    told,
  );
}

function outcome(look) {
  const rows = look.search.hypotheses.map((one, n) =>
    html(
      "tr",
      {},
      html("td", { class: "number" }, n + 1),
      html("td", { dir: "auto" }, one.text),
      html("td", { class: "number" }, one.pieces.length),
      html("td", { class: "number" }, number(one.log_prob, 3)),
      html("td", { class: "number" }, number(((5 + one.pieces.length) / 6) ** Number(state.alpha), 3)),
      html("td", { class: "number" }, number(one.score, 4)),
    ),
  );
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("beam.finished.title")),
    html("p", { class: "formula" }, "score = log P / ((5 + |Y|) / 6)^α"),
    html(
      "div",
      { class: "scroll" },
      html(
        "table",
        {},
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            ["#", t("target"), "|Y|", "log P", t("beam.penalty"), t("score")].map((word, n) =>
              html("th", { class: n === 1 ? "" : "number" }, word),
            ),
          ),
        ),
        html("tbody", {}, rows),
      ),
    ),
  );
}

export function draw(body, { look }) {
  const columns = linked(look.search.steps);
  const winner = best(columns, look.search.hypotheses[0]);
  const [step, row] = state.node.split(".").map(Number);
  const chosen = state.node && columns[step]?.[row];
  const note = html("p", { class: "reading", "aria-live": "polite" }, chosen ? tell(chosen) : winner ? tell(winner) : " ");
  const key = ["kept", "finished", "pruned"].map(fate => html("span", { class: `fate ${fate}` }, t(`beam.${fate}`)));
  body.append(
    html(
      "section",
      { class: "card wide" },
      html("div", { class: "row" }, control("beam", 1, 16, 1), control("alpha", 0, 2, 0.1)),
      html(
        "div",
        { class: "row soft" },
        key,
        html("span", {}, t("beam.count", { all: columns.flat().length, steps: columns.length })),
      ),
      tree(columns, chosen || winner, note),
      note,
    ),
    outcome(look),
  );
  return { beam: Number(state.beam), alpha: Number(state.alpha), ...look.search };
}
