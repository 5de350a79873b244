// View 5: every head there is; one of them large; and the model without some of them.

import { bars, entropy, heat, html, legend, matrix, mean, number, percent } from "./drawing.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

export const SITES = ["encoder", "decoder", "cross"];

/** Rows ask, columns answer. */
export function namesOf(site, { sources, inputs }) {
  return site === "encoder" ? [sources, sources] : site === "decoder" ? [inputs, inputs] : [inputs, sources];
}

/** The layer and head of the address, inside what the model has. */
export function chosenHead(model) {
  const site = SITES.includes(state.site) ? state.site : "cross";
  const most = model[site === "encoder" ? "encoder_layers" : "decoder_layers"] - 1;
  const layer = state.layer === "" ? most : Math.min(Number(state.layer), most);
  return { site, layer, head: Math.min(Number(state.head), model.num_heads - 1) };
}

export function siteChoice() {
  return html(
    "div",
    { class: "choices", role: "group", "aria-label": t("heads.site") },
    SITES.map(site =>
      html(
        "button",
        { "aria-pressed": String(state.site === site), "data-key": `site-${site}`, onclick: () => set({ site, query: 0 }) },
        t(`site.${site}`),
      ),
    ),
  );
}

const headsOff = () =>
  state.off
    .split(",")
    .filter(Boolean)
    .map(one => one.split("."))
    .map(([site, layer, head]) => [site, Number(layer), Number(head)]);
const nameOf = ([site, layer, head]) => `${t(`site.${site}`)} ${layer + 1}.${head + 1}`;

function grid(look, chosen) {
  const layers = look.attention[chosen.site];
  const off = new Set(headsOff().map(String));
  const rows = layers.map((layer, l) =>
    html(
      "div",
      { class: "layer" },
      html("span", { class: "count" }, t("layer", { n: l + 1 })),
      layer.weights.map((weights, h) => {
        const isOff = off.has(String([chosen.site, l, h]));
        const here = mean(layer.entropy[h]);
        const button = html(
          "button",
          {
            class: `head${isOff ? " off" : ""}`,
            "aria-pressed": String(l === chosen.layer && h === chosen.head),
            "data-key": `head-${l}-${h}`,
            "data-entropy": here.toFixed(5),
            "aria-label": t("heads.one", { layer: l + 1, head: h + 1, entropy: number(here, 2) }),
            onclick: () => set({ layer: l, head: h, fold: "one" }),
            ondblclick: () => toggle(chosen.site, l, h),
          },
          heat(weights),
          html("small", {}, `${l + 1}.${h + 1}`, html("span", {}, `H ${number(here, 2)}`)),
        );
        return button;
      }),
    ),
  );
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  return html(
    "div",
    {
      class: "heads scroll",
      "data-scroll": "heads",
      onkeydown: event => {
        const at = event.target.dataset?.key?.match(/^head-(\d+)-(\d+)$/);
        const by = move[event.key];
        if (!at || !by) return;
        event.preventDefault();
        document.querySelector(`[data-key="head-${Number(at[1]) + by[0]}-${Number(at[2]) + by[1]}"]`)?.focus();
      },
    },
    rows,
  );
}

function toggle(...head) {
  const all = headsOff().map(String);
  const one = String(head);
  const now = all.includes(one) ? all.filter(other => other !== one) : [...all, one];
  set({ off: now.map(each => each.replaceAll(",", ".")).join(",") });
}

/** One head, or the mean or the largest of a layer's. */
function folded(weights, head) {
  if (state.fold === "one") return weights[head];
  const fold = state.fold === "max" ? values => Math.max(...values) : mean;
  return weights[0].map((row, r) => row.map((_, c) => fold(weights.map(one => one[r][c]))));
}

/** One row a head: where it looks at one place, and where everywhere. */
function entropies(all, rows, columns) {
  const most = Math.log(columns.length);
  const names = all.entropy.map((_, head) => String(head + 1));
  return [
    html("p", { class: "soft" }, t("heads.entropy.facts", { most: number(most, 3) })),
    matrix({
      values: all.entropy,
      rows: names,
      columns: rows,
      low: 0,
      high: most,
      label: t("heads.entropy.short"),
      tell: (head, row, value) => t("heads.entropy.tell", { head: head + 1, row: rows[row], entropy: number(value, 3) }),
    }),
    legend("0", number(most, 2)),
  ];
}

function weightsOf(values, rows, columns, spread) {
  const flat = values.flat();
  const top = Math.max(...flat);
  const at = flat.indexOf(top);
  const where = [Math.floor(at / columns.length), at % columns.length];
  return [
    html(
      "p",
      { class: "soft" },
      t("heads.facts", {
        entropy: number(mean(spread), 3),
        most: number(Math.log(columns.length), 3),
        top: percent(top),
        row: rows[where[0]],
        column: columns[where[1]],
      }),
    ),
    matrix({
      values,
      rows,
      columns,
      label: t("heads.zoom"),
      tell: (row, column, value) => t("heads.tell", { row: rows[row], column: columns[column], share: percent(value) }),
    }),
    legend("0 %", "100 %"),
  ];
}

function zoom(context, chosen) {
  const { site, layer, head } = chosen;
  const all = context.look.attention[site][layer];
  const values = folded(all.weights, head);
  const [rows, columns] = namesOf(site, context);
  const spread =
    state.fold === "one"
      ? all.entropy[head]
      : values.map(row => entropy(row.map(value => value / row.reduce((sum, one) => sum + one, 0))));
  const isOff = headsOff()
    .map(String)
    .includes(String([site, layer, head]));
  return {
    values,
    node: html(
      "section",
      { class: "card wide" },
      html(
        "h3",
        {},
        state.fold === "one"
          ? t("heads.one.title", { site: t(`site.${site}`), layer: layer + 1, head: head + 1 })
          : t(`heads.${state.fold}.title`, { site: t(`site.${site}`), layer: layer + 1 }),
      ),
      html(
        "div",
        { class: "row" },
        html(
          "div",
          { class: "choices" },
          ["one", "mean", "max", "entropy"].map(fold =>
            html(
              "button",
              { "aria-pressed": String(state.fold === fold), "data-key": `fold-${fold}`, onclick: () => set({ fold }) },
              t(`heads.${fold}.short`),
            ),
          ),
        ),
        state.fold === "one" &&
          html(
            "button",
            { class: isOff ? "warn" : "", "data-key": "off", onclick: () => toggle(site, layer, head) },
            t(isOff ? "heads.on" : "heads.off"),
          ),
        html(
          "button",
          { class: "link", "data-key": "inside", onclick: () => set({ view: "head", layer, head }) },
          t("heads.inside"),
        ),
      ),
      state.fold === "entropy" ? entropies(all, rows, columns) : weightsOf(values, rows, columns, spread),
    ),
  };
}

/** Each head of a layer switched off by itself: how much less probable the translation becomes. */
function trial({ look, ask, later }, { site, layer }, numbers) {
  const question = { target: look.target.text, prefix: undefined };
  const count = look.attention[site][layer].weights.length;
  if (state.tried !== "yes")
    return html("button", { "data-key": "try", onclick: () => set({ tried: "yes" }) }, t("heads.try", { n: layer + 1 }));
  const all = Promise.all(
    Array.from({ length: count }, (_, head) => ask({ ...question, heads_off: [[site, layer, head]] })),
  );
  return later(all, answers => {
    const rows = answers.map((answer, head) => ({
      name: `${t(`site.${site}`)} ${layer + 1}.${head + 1}`,
      value: answer.log_prob - look.log_prob,
      text: number(answer.log_prob - look.log_prob, 2),
      key: `tried-${head}`,
      pick: () => toggle(site, layer, head),
    }));
    numbers.each_head_off = rows.map(row => row.value);
    return html("div", {}, html("p", { class: "soft" }, t("heads.tried", { n: layer + 1 })), bars(rows));
  });
}

function effect({ look, ask, later }, chosen, numbers) {
  const off = headsOff();
  const each = trial({ look, ask, later }, chosen, numbers);
  if (!off.length)
    return html(
      "section",
      { class: "card wide" },
      html("h3", {}, t("heads.effect")),
      html("p", { class: "soft" }, t("heads.effect.none")),
      each,
    );
  const compare = answer => {
    const now = answer.search.hypotheses[0];
    numbers.without_heads = { heads_off: off, log_prob: answer.log_prob, translation: now.text };
    return html(
      "dl",
      { class: "versus" },
      html("dt", {}, t("heads.all")),
      html("dd", { dir: "auto" }, look.target.text, html("small", {}, `log P = ${number(look.log_prob, 3)}`)),
      html("dt", {}, t("heads.fewer")),
      html(
        "dd",
        { dir: "auto", "data-log-prob": answer.log_prob, "data-text": now.text },
        now.text || "–",
        html("small", {}, now.text === look.target.text ? t("heads.same") : t("heads.different")),
      ),
      html("dt", {}, t("heads.old")),
      html(
        "dd",
        {},
        `${number(look.log_prob, 3)} → ${number(answer.log_prob, 3)}`,
        html("small", {}, t("heads.difference", { change: number(answer.log_prob - look.log_prob, 3) })),
      ),
    );
  };
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("heads.effect")),
    html(
      "div",
      { class: "choices" },
      off.map(one =>
        html("button", { class: "chip", "data-key": `off-${one}`, onclick: () => toggle(...one) }, `${nameOf(one)} ×`),
      ),
      html("button", { class: "link", "data-key": "off-none", onclick: () => set({ off: "" }) }, t("heads.all-on")),
    ),
    later(ask({ target: look.target.text, prefix: undefined, heads_off: off }), compare),
    each,
  );
}

export function draw(body, context) {
  const chosen = chosenHead(context.model.model);
  const numbers = { ...chosen, attention: context.look.attention[chosen.site] };
  const { values, node } = zoom(context, chosen);
  numbers.shown = values;
  body.append(
    html(
      "section",
      { class: "card wide" },
      siteChoice(),
      html("p", { class: "soft" }, t(`site.${chosen.site}.why`)),
      grid(context.look, chosen),
    ),
    html("div", { class: values[0].length > 18 ? "columns one" : "columns uneven" }, node, effect(context, chosen, numbers)),
  );
  return numbers;
}
