// View 5: every attention head of the model, one of them enlarged, and the model with some heads switched off.

import { bars, entropy, heat, html, legend, matrix, mean, number, onOff, percent } from "./drawing.js";
import { hasCausalMask, isRecurrent } from "./kinds.js";
import { set, state, within } from "./state.js";
import { largest } from "./vectors.js";
import { versus } from "./without.js";
import { t, tOf } from "./words.js";

const SITES = ["encoder", "decoder", "cross"];
const FOLDS = ["one", "mean", "max", "entropy"];

/** Return the names of the rows, which are queries, and of the columns, which are keys. */
export function namesOf(site, { sources, inputs }) {
  return site === "encoder" ? [sources, sources] : site === "decoder" ? [inputs, inputs] : [inputs, sources];
}

const sitesOf = ({ attention }) => SITES.filter(site => attention[site].length);

/** Return the layer and head of the address, limited to those of the model; undefined for a model without attention. */
export function chosenHead(look) {
  const sites = sitesOf(look);
  if (!sites.length) return undefined;
  const site = sites.includes(state.site) ? state.site : "cross";
  const last = look.attention[site].length - 1;
  const layer = state.layer === "" ? last : within(state.layer, last);
  return { site, layer, head: within(state.head, look.attention[site][layer].weights.length - 1) };
}

/** Return the ways to summarise a layer's heads; one head has no mean or maximum. */
const foldsOf = numHeads => (numHeads > 1 ? FOLDS : ["one", "entropy"]);
const chosenFold = numHeads => (foldsOf(numHeads).includes(state.fold) ? state.fold : "one");

export function siteChoice(chosen, look, model) {
  const sites = sitesOf(look);
  if (sites.length < 2) return "";
  return html(
    "div",
    { class: "choices", role: "group", "aria-label": t("heads.site") },
    sites.map(site =>
      html(
        "button",
        { "aria-pressed": String(chosen.site === site), "data-key": `site-${site}`, onclick: () => set({ site, query: 0 }) },
        tOf(`site.${site}`, model),
      ),
    ),
  );
}

/** Show, for a model without attention, the fixed vector in its place. */
export function withoutAttention(body, { look, sources }) {
  const high = largest([look.fixed]);
  body.append(
    html(
      "section",
      { class: "card wide" },
      html("h3", {}, t("map.fixed")),
      html("p", { class: "soft" }, t("heads.fixed", { size: look.fixed.length, n: sources.length })),
      html(
        "div",
        { class: "strip tall", role: "img", "aria-label": t("map.fixed") },
        heat([look.fixed], { diverging: true, high }),
      ),
      legend(`−${number(high, 2)}`, number(high, 2), { diverging: true }),
    ),
  );
  return { fixed: look.fixed };
}

const isOne = head => other => String(other) === String(head);

/** Return the heads that the address switches off and the model has. */
function headsOff({ attention }) {
  const named = state.off.split(",").map(one => one.split("."));
  return named
    .filter(([site, layer, head]) => SITES.includes(site) && head < (attention[site][layer]?.weights.length ?? 0))
    .map(([site, layer, head]) => [site, within(layer, Infinity), within(head, Infinity)]);
}

const nameOf = ([site, layer, head], model) => `${tOf(`site.${site}`, model)} ${layer + 1}.${head + 1}`;

function toggle(off, head) {
  const now = off.some(isOne(head)) ? off.filter(other => !isOne(head)(other)) : [...off, head];
  set({ off: now.map(one => one.join(".")).join(",") });
}

/** Draw a small picture of a head, with its switch. */
function tile(weights, spread, [site, layer, head], chosen, off) {
  const isOff = off.some(isOne([site, layer, head]));
  const here = mean(spread);
  const told = { layer: layer + 1, head: head + 1, entropy: number(here, 2) };
  return html(
    "div",
    { class: "tile" },
    html(
      "button",
      {
        class: `head${isOff ? " off" : ""}`,
        "aria-pressed": String(layer === chosen.layer && head === chosen.head),
        "data-key": `head-${layer}-${head}`,
        "data-entropy": here.toFixed(5),
        "aria-label": t(isOff ? "heads.one.off" : "heads.one", told),
        onclick: () => set({ layer, head, fold: "one" }),
      },
      heat(weights),
      html("small", {}, `${layer + 1}.${head + 1}`, html("span", {}, `H ${number(here, 2)}`)),
    ),
    onOff(
      !isOff,
      {
        "data-key": `switch-${layer}-${head}`,
        "aria-label": t("heads.switch", told),
        onchange: () => toggle(off, [site, layer, head]),
      },
      html("small", {}, t(isOff ? "heads.is-off" : "heads.is-on")),
    ),
  );
}

function grid(look, chosen, off) {
  const rows = look.attention[chosen.site].map((layer, l) =>
    html(
      "div",
      { class: "layer" },
      html("span", { class: "count" }, t("layer", { n: l + 1 })),
      layer.weights.map((weights, h) => tile(weights, layer.entropy[h], [chosen.site, l, h], chosen, off)),
    ),
  );
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  return html(
    "div",
    {
      class: "heads scroll",
      "data-scroll": "heads",
      onkeydown: event => {
        const at = event.target.dataset?.key?.match(/^(head|switch)-(\d+)-(\d+)$/);
        const by = move[event.key];
        if (!at || !by) return;
        event.preventDefault();
        document.querySelector(`[data-key="${at[1]}-${Number(at[2]) + by[0]}-${Number(at[3]) + by[1]}"]`)?.focus();
      },
    },
    rows,
  );
}

/** Return one head's weights, or the mean or maximum over a layer's heads. */
function folded(weights, head, kind) {
  if (kind === "one") return weights[head];
  const fold = kind === "max" ? values => Math.max(...values) : mean;
  return weights[0].map((row, r) => row.map((_, c) => fold(weights.map(one => one[r][c]))));
}

const isMasked = (site, model) => site === "decoder" && hasCausalMask(model);

/** Return the largest entropy of each row; under the causal mask, a position sees only those up to itself. */
const mostOf = (masked, rows, columns) => rows.map((_, n) => Math.log(masked ? n + 1 : columns.length));

/** Draw the entropy of every query, with one row for each head. */
function entropies(all, masked, rows, columns) {
  const most = Math.max(...mostOf(masked, rows, columns));
  const names = all.entropy.map((_, head) => String(head + 1));
  return [
    html("p", { class: "soft" }, t("heads.entropy.facts", { most: number(most, 3) })),
    masked && html("p", { class: "soft" }, t("heads.entropy.masked")),
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

function weightsOf(values, masked, rows, columns, spread) {
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
        most: number(mean(mostOf(masked, rows, columns)), 3),
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
    legend(percent(0), percent(1)),
  ];
}

/** Draw the choice between a head and summaries of its layer, and the switch of the chosen head. */
function choices({ site, layer, head }, off, numHeads) {
  const isOff = off.some(isOne([site, layer, head]));
  const fold = chosenFold(numHeads);
  return html(
    "div",
    { class: "row" },
    html(
      "div",
      { class: "choices" },
      foldsOf(numHeads).map(one =>
        html(
          "button",
          { "aria-pressed": String(fold === one), "data-key": `fold-${one}`, onclick: () => set({ fold: one }) },
          t(`heads.${one}.short`),
        ),
      ),
    ),
    fold === "one" &&
      html(
        "button",
        { class: isOff ? "warn" : "", "data-key": "off", onclick: () => toggle(off, [site, layer, head]) },
        t(isOff ? "heads.on" : "heads.off"),
      ),
    html(
      "button",
      { class: "link", "data-key": "inside", onclick: () => set({ view: "head", layer, head }) },
      t("heads.inside"),
    ),
  );
}

function zoom(context, chosen, off) {
  const { site, layer, head } = chosen;
  const { model } = context.model;
  const all = context.look.attention[site][layer];
  const fold = chosenFold(all.weights.length);
  const values = fold === "entropy" ? all.entropy : folded(all.weights, head, fold);
  const [rows, columns] = namesOf(site, context);
  const masked = isMasked(site, model);
  const named = { site: tOf(`site.${site}`, model), layer: layer + 1, head: head + 1 };
  const total = row => row.reduce((sum, one) => sum + one, 0);
  const spread = () =>
    fold === "one" ? all.entropy[head] : values.map(row => entropy(row.map(value => value / total(row))));
  return {
    values,
    node: html(
      "section",
      { class: "card wide" },
      html("h3", {}, tOf(`heads.${fold}.title`, model, named)),
      choices(chosen, off, all.weights.length),
      fold === "entropy" ? entropies(all, masked, rows, columns) : weightsOf(values, masked, rows, columns, spread()),
    ),
  };
}

/** Switch off each head of a layer by itself, and show how much less probable the translation becomes. */
function trial({ look, askSame, later, model: { model } }, { site, layer }, off, numbers) {
  if (isRecurrent(model)) return ""; // its only head has a switch of its own
  if (state.tried !== "yes")
    return html("button", { "data-key": "try", onclick: () => set({ tried: "yes" }) }, t("heads.try", { n: layer + 1 }));
  const heads = look.attention[site][layer].weights.map((_, head) => [site, layer, head]);
  return later(Promise.all(heads.map(head => askSame({ heads_off: [head] }))), answers => {
    const rows = answers.map((answer, n) => ({
      name: nameOf(heads[n], model),
      value: answer.log_prob - look.log_prob,
      text: number(answer.log_prob - look.log_prob, 2),
      key: `tried-${n}`,
      pick: () => toggle(off, heads[n]),
    }));
    numbers.each_head_off = rows.map(row => row.value);
    return html("div", {}, html("p", { class: "soft" }, t("heads.tried", { n: layer + 1 })), bars(rows));
  });
}

function effect(context, chosen, off, numbers) {
  const { look, askSame, later } = context;
  const { model } = context.model;
  const compare = answer => {
    const now = answer.search.hypotheses[0];
    numbers.without_heads = { heads_off: off, log_prob: answer.log_prob, translation: now.text };
    return versus(look, answer, tOf("heads.all", model), t("heads.fewer"));
  };
  const without = () => [
    html(
      "div",
      { class: "choices" },
      off.map(one =>
        html(
          "button",
          { class: "chip", "data-key": `off-${one}`, onclick: () => toggle(off, one) },
          `${nameOf(one, model)} ×`,
        ),
      ),
      html("button", { class: "link", "data-key": "off-none", onclick: () => set({ off: "" }) }, t("heads.all-on")),
    ),
    later(askSame({ heads_off: off }), compare),
  ];
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, tOf("heads.effect", model)),
    off.length ? without() : html("p", { class: "soft" }, tOf("heads.effect.how", model)),
    trial(context, chosen, off, numbers),
  );
}

export function draw(body, context) {
  const { model } = context.model;
  const chosen = chosenHead(context.look);
  if (!chosen) return withoutAttention(body, context);
  const off = headsOff(context.look);
  const { values, node } = zoom(context, chosen, off);
  const numbers = { ...chosen, attention: context.look.attention[chosen.site], shown: values };
  const isWide = namesOf(chosen.site, context)[1].length > 18;
  body.append(
    html(
      "section",
      { class: "card wide" },
      siteChoice(chosen, context.look, model),
      html("p", { class: "soft" }, tOf(`site.${chosen.site}.why`, model)),
      grid(context.look, chosen, off),
    ),
    html("div", { class: isWide ? "columns one" : "columns uneven" }, node, effect(context, chosen, off, numbers)),
  );
  return numbers;
}
