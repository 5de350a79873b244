// View 10: the training curves of a run, live if it is in training, and another run's translation of the same sentence.

import { html, lines, number, textOf, whole } from "./drawing.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const PAUSE = 4000; // milliseconds between two requests for the curves of a run in training
let waiting;

const curve = (name, lines_, key) => ({
  name,
  points: lines_.filter(line => line[key] !== undefined).map(line => [line.step, line[key]]),
});

/** Return whether two runs have the same curves, as a checkpoint and its run do; these are drawn once. */
const isSame = (one, other) => JSON.stringify(one.metrics) === JSON.stringify(other.metrics);

function charts(found, other) {
  const all = (key, names) =>
    [
      ...curves(found, key, names),
      ...(other
        ? curves(
            other.found,
            key,
            names.map(name => `${name}, ${other.name}`),
          )
        : []),
    ].filter(one => one.points.length);
  const curves = (run, keys, names) => keys.map((key, n) => curve(names[n], run.metrics, key));
  const chart = (title, keys, names, more = {}) => {
    const drawn = all(keys, names);
    return (
      drawn.length &&
      html(
        "section",
        { class: "card" },
        html("h3", {}, t(title)),
        html("p", { class: "soft" }, t(`${title}.why`)),
        lines({ curves: drawn, label: t(title), axis: t("training.step"), ...more }),
      )
    );
  };
  return [
    chart("training.loss", ["nll", "valid_nll"], [t("training.training"), t("training.validation")]),
    chart("training.bleu", ["valid_bleu"], [t("training.validation")], { bottom: 0, dots: true }),
    chart("training.rate", ["learning_rate"], [t("training.rate")], { bottom: 0 }),
    chart("training.gradient", ["gradient_norm"], [t("training.gradient")], { bottom: 0 }),
  ].filter(Boolean);
}

function summary(found) {
  const last = found.metrics.filter(line => line.nll !== undefined).at(-1);
  const valid = found.metrics.filter(line => line.valid_bleu !== undefined).at(-1);
  const speed = found.timing?.filter(line => line.tokens_per_second !== undefined).at(-1);
  return html(
    "p",
    { class: "facts", "data-step": last?.step ?? 0 },
    [
      last ? t("training.at", { step: whole(last.step), steps: whole(found.steps) }) : t("training.none"),
      valid ? `BLEU ${valid.valid_bleu.toFixed(1)}` : "",
      speed ? t("training.speed", { speed: whole(Math.round(speed.tokens_per_second)) }) : "",
      t(found.is_finished ? "training.finished" : "training.live"),
    ]
      .filter(Boolean)
      .join(" · "),
  );
}

async function both() {
  const found = await source.training(state.run);
  return { found, other: state.other ? { name: state.other, found: await source.training(state.other) } : undefined };
}

/** Redraw the curves while the run trains and this view is open, even after failed requests. */
function follow(place, numbers, told) {
  clearTimeout(waiting);
  const again = () => {
    waiting = setTimeout(() => {
      if (place.isConnected) both().then(drawn, again);
    }, PAUSE);
  };
  const drawn = ({ found, other }) => {
    Object.assign(numbers, { run: state.run, training: found, other });
    const beside = other && !isSame(found, other.found) ? other : undefined;
    place.replaceChildren(summary(found), html("div", { class: "columns" }, charts(found, beside)));
    if (!source.isFile && !(found.is_finished && (other?.found.is_finished ?? true))) again();
  };
  return both().then(drawn, problem => {
    place.replaceChildren(html("p", { class: "soft" }, told(problem)));
    again();
  });
}

/** Return the question for another run: as text, because its subwords differ, and unconstrained in another language. */
function questionFor(other, own, look, question) {
  const free = { ...question, run: other.name, target_pieces: undefined, prefix_pieces: undefined };
  if (other.tgt_lang !== own.tgt_lang) return { ...free, target: undefined, prefix: undefined };
  return {
    ...free,
    target: question.target_pieces ? look.target.text : question.target,
    prefix: question.prefix_pieces ? textOf(question.prefix_pieces) : question.prefix,
  };
}

function compare({ look, runs, later, question }, numbers) {
  const own = runs.find(run => run.name === state.run);
  const others = runs.filter(run => run !== own && run.src_lang === own.src_lang);
  const other = others.find(run => run.name === state.other);
  const title = html("h3", {}, t("training.compare"));
  if (!others.length)
    return html("section", { class: "card wide" }, title, html("p", { class: "soft" }, t("training.alone")));
  const choice = html(
    "select",
    { "data-key": "other", "aria-label": t("training.compare"), onchange: event => set({ other: event.target.value }) },
    html("option", { value: "" }, "–"),
    others.map(run => html("option", { value: run.name, selected: run.name === state.other }, run.name)),
  );
  const line = (name, answer) => [
    html("dt", {}, name),
    html(
      "dd",
      { dir: "auto", "data-run": name, "data-log-prob": answer.log_prob },
      answer.target.text,
      html("small", {}, `log P = ${number(answer.log_prob, 3)}`),
    ),
  ];
  return html(
    "section",
    { class: "card wide" },
    title,
    html("p", { class: "soft" }, t("training.compare.why")),
    choice,
    look && other
      ? later(source.inspectChanged(questionFor(other, own, look, question)), answer => {
          numbers.same_sentence = { [own.name]: look.target.text, [other.name]: answer.target.text };
          return html("dl", { class: "versus" }, line(own.name, look), line(other.name, answer));
        })
      : "",
  );
}

export function draw(body, context) {
  const place = html("div");
  const numbers = {};
  if (state.other === state.run || !context.runs.some(run => run.name === state.other)) state.other = "";
  body.append(
    context.later(follow(place, numbers, context.told), () => place),
    compare(context, numbers),
  );
  return numbers;
}
