// View 10: how a run learnt, or is learning now; and what another says to the same sentence.

import { html, lines, number, whole } from "./drawing.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const PAUSE = 4000; // milliseconds between two looks at a run in training
let waiting;

const curve = (name, lines_, key) => ({
  name,
  points: lines_.filter(line => line[key] !== undefined).map(line => [line.step, line[key]]),
});

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

/** Drawn anew while a run trains and this view is looked at. */
function follow(place, numbers) {
  clearTimeout(waiting);
  const drawn = ({ found, other }) => {
    Object.assign(numbers, { run: state.run, training: found, other });
    place.replaceChildren(summary(found), html("div", { class: "columns" }, charts(found, other)));
    if (!found.is_finished && !source.isFile)
      waiting = setTimeout(() => {
        if (place.isConnected) both().then(drawn, () => {});
      }, PAUSE);
  };
  return both().then(drawn);
}

function compare({ look, model, runs, later, question }, numbers) {
  const others = runs.filter(run => run.name !== state.run && run.src_lang === model.src_lang);
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
    look && state.other
      ? later(source.inspect({ ...question, run: state.other }), answer => {
          numbers.same_sentence = { [state.run]: look.target.text, [state.other]: answer.target.text };
          return html("dl", { class: "versus" }, line(state.run, look), line(state.other, answer));
        })
      : "",
  );
}

export function draw(body, context) {
  const place = html("div");
  const numbers = {};
  if (state.other === state.run || !context.runs.some(run => run.name === state.other)) state.other = "";
  body.append(
    context.later(follow(place, numbers), () => place),
    compare(context, numbers),
  );
  return numbers;
}
