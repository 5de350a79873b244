// View 8: the tree of beam search, with every hypothesis that was kept, finished or pruned.

import { html, number, svg, textOf } from "./drawing.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { named, t } from "./words.js";

const COLUMN = 134;
const ROW = 38;
const BOX = 102;
const TALL = 31;
const TOP = 28;
const LEFT = 46;
const x = node => LEFT + COLUMN * node.step;
const y = node => TOP + ROW * (node.row + 0.5);
const idOf = node => `${node.step}.${node.row}`;

/** Link each candidate to its parent, which is given as an index among those kept in the step before. */
function linked(steps) {
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

/** Shorten a text to fit beside the numbers; Chinese characters are wider. */
function short(text) {
  const most = /[\u2e80-\uffff]/.test(text) ? 4 : 7;
  return [...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text;
}

/** Draw the edge to a node from its parent's right side, or from the root. */
function edge(node, isBest) {
  const from = node.from ? { x: x(node.from) + BOX, y: y(node.from) } : { x: 34, y: TOP + ROW / 2 };
  const middle = (from.x + x(node)) / 2;
  return svg("path", {
    class: `edge ${node.fate}${isBest ? " best" : ""}`,
    d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${y(node)} ${x(node)} ${y(node)}`,
  });
}

function nodeOf(node, isBest, isStop, note) {
  const label = short(named(node.piece));
  const id = idOf(node);
  const amount = (value, down) =>
    svg("text", { class: "amount", x: x(node) + BOX - 5, y: y(node) + down, "text-anchor": "end" }, number(value, 2));
  return svg(
    "g",
    {
      class: `node ${node.fate}${isBest ? " best" : ""}${state.node === id ? " chosen" : ""}`,
      tabindex: isStop ? 0 : -1,
      role: "button",
      "aria-pressed": String(state.node === id),
      "data-key": `node-${id}`,
      "data-log-prob": node.log_prob,
      "data-score": node.score,
      "aria-label": tell(node),
      onpointerenter: () => {
        note.textContent = tell(node);
      },
      onfocus: event => {
        note.textContent = tell(node);
        event.target.parentNode.querySelector('[tabindex="0"]')?.setAttribute("tabindex", -1);
        event.target.setAttribute("tabindex", 0);
      },
      onclick: () => set({ node: state.node === id ? "" : id }),
    },
    svg("rect", { x: x(node), y: y(node) - TALL / 2, width: BOX, height: TALL, rx: 5 }),
    svg("text", { x: x(node) + 6, y: y(node) + 4 }, label),
    amount(node.log_prob, -3),
    amount(node.score, 11),
  );
}

/** Move the focus by arrow keys: to the parent, the first child, or the node above or below. Tab stops at the tree once. */
function walk(event, columns) {
  const at = event.target.dataset.key?.match(/^node-(\d+)\.(\d+)$/);
  const node = at && columns[at[1]][at[2]];
  if (!node) return;
  const next = {
    ArrowLeft: () => node.from,
    ArrowRight: () => columns[node.step + 1]?.find(one => one.from === node),
    ArrowUp: () => columns[node.step][node.row - 1],
    ArrowDown: () => columns[node.step][node.row + 1],
  }[event.key];
  if (event.key === "Enter" || event.key === " ") set({ node: state.node === idOf(node) ? "" : idOf(node) });
  else if (!next) return;
  event.preventDefault();
  const found = next?.();
  if (found) event.currentTarget.querySelector(`[data-key="node-${idOf(found)}"]`).focus();
}

function tree(columns, winner, note) {
  const most = Math.max(...columns.map(nodes => nodes.length));
  const width = LEFT + COLUMN * columns.length;
  const height = TOP + ROW * most + 12;
  const onWay = new Set(wayTo(winner));
  const all = columns.flat();
  const stop = state.node ? winner : [...onWay][0];
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      class: "tree",
      role: "group",
      "aria-label": t("beam.tree"),
      onkeydown: event => walk(event, columns),
    },
    svg("text", { x: 4, y: TOP + ROW / 2 + 4 }, "<s>"),
    columns.map((_, step) => svg("text", { class: "soft", x: LEFT + COLUMN * step, y: 14 }, step + 1)),
    [false, true].flatMap(isBest => all.filter(node => onWay.has(node) === isBest).map(node => edge(node, isBest))),
    all.map(node => nodeOf(node, onWay.has(node), node === (stop ?? all[0]), note)),
  );
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
    { class: "card" },
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
  const key = ["kept", "finished", "pruned"].map(fate => {
    const count = columns.flat().filter(node => node.fate === fate).length;
    return html("span", { class: `fate ${fate}` }, html("i"), `${t(`beam.${fate}`)} ${count}`);
  });
  body.append(
    html(
      "section",
      { class: "card" },
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
