// View 6: one head, one word, and equation 1 step by step (claims M4, M16 to M18).

import { bars, entropy, heat, html, legend, number, percent, softmax } from "./drawing.js";
import { chosenHead, namesOf, siteChoice, withoutAttention } from "./heads.js";
import { isRecurrent } from "./kinds.js";
import { set, state, within } from "./state.js";
import { dot, largest } from "./vectors.js";
import { versus } from "./without.js";
import { t } from "./words.js";

/** Return the slider's scale, or undefined for the model's own scale. */
const chosenScale = () => (Number(state.scale) > 0 ? Math.min(Number(state.scale), 1000) : undefined);

/** Return the Frobenius norm of softmax's gradient, diag(y) − yyᵀ. Where it is 0, nothing is learnt. */
const slope = weights =>
  Math.sqrt(
    weights.reduce((sum, a, i) => sum + weights.reduce((inner, b, j) => inner + ((i === j ? a : 0) - a * b) ** 2, 0), 0),
  );

function strip(values, high, label) {
  return html("div", { class: "strip", role: "img", "aria-label": label }, heat(values, { diverging: true, high }));
}

function pickers({ look, model: { model } }, chosen, rows) {
  const range = (name, count, value) =>
    html(
      "label",
      {},
      t(`head.${name}`),
      html(
        "select",
        { "data-key": name, onchange: event => set({ [name]: event.target.value, query: 0 }) },
        Array.from({ length: count }, (_, n) => html("option", { value: n, selected: n === value }, n + 1)),
      ),
    );
  const layers = look.attention[chosen.site];
  const numHeads = layers[chosen.layer].weights.length;
  const query = within(state.query, rows.length - 1);
  return html(
    "section",
    { class: "card wide" },
    html(
      "div",
      { class: "row" },
      siteChoice(chosen, look, model),
      layers.length > 1 && range("layer", layers.length, chosen.layer),
      numHeads > 1 && range("head", numHeads, chosen.head),
    ),
    html("p", { class: "soft" }, t("head.query")),
    html(
      "div",
      { class: "choices" },
      rows.map((name, n) =>
        html(
          "button",
          { "aria-pressed": String(n === query), "data-key": `query-${n}`, onclick: () => set({ query: n }) },
          name,
        ),
      ),
    ),
  );
}

/** An additive score has a vector v, which weighs tanh(q + k). Other scores have none. */
const isAdditive = found => found.score === "additive";
const compared = (found, q, k) =>
  isAdditive(found) ? found.vector.reduce((sum, v, n) => sum + v * Math.tanh(q[n] + k[n]), 0) : dot(q, k);

function vectors(found, query, products, rows, columns) {
  const high = largest([...found.queries, ...found.keys, found.vector]);
  const open = found.mask[query];
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("head.vectors")),
    html("p", { class: "soft" }, t(isAdditive(found) ? "head.vectors.additive" : "head.vectors.why", { size: found.d_k })),
    isAdditive(found) &&
      html("div", { class: "strip-row" }, html("span", {}, "v"), strip([found.vector], high, "v"), html("b", {}, "")),
    html(
      "div",
      { class: "strip-row result" },
      html("span", {}, `q ${rows[query]}`),
      strip([found.queries[query]], high, `q ${rows[query]}`),
      html("b", {}, isAdditive(found) ? "e" : "q·k"),
    ),
    columns.map((name, n) =>
      html(
        "div",
        { class: `strip-row${open[n] ? "" : " faded"}` },
        html("span", {}, `k ${name}`),
        strip([found.keys[n]], high, `k ${name}`),
        html("b", { "data-product": products[n] }, number(products[n], 2)),
      ),
    ),
    legend(`−${number(high, 1)}`, number(high, 1), { diverging: true }),
  );
}

/** Return softmax over the scores that are not masked. */
function weighed(scores, open) {
  const seen = scores.map((_, n) => n).filter(n => open[n]);
  const shares = softmax(seen.map(n => scores[n]));
  return scores.map((_, n) => (open[n] ? shares[seen.indexOf(n)] : 0));
}

function scored({ scale, scores, weights }, found, columns, open) {
  const rows = columns.map((name, n) => ({
    name,
    value: open[n] ? scores[n] : 0,
    text: open[n] ? number(scores[n], 2) : t("head.masked"),
    faded: !open[n],
  }));
  const shares = columns.map((name, n) => ({ name, value: weights[n], text: percent(weights[n]), faded: !open[n] }));
  const saturation = { entropy: number(entropy(weights), 3), slope: number(slope(weights), 3) };
  return [
    html(
      "section",
      { class: "card" },
      html("h3", {}, t("head.scores")),
      html("p", { class: "formula" }, isAdditive(found) ? "e = vᵀ tanh(q + k)" : `q·k / ${number(1 / scale, 2)}`),
      bars(rows),
    ),
    html(
      "section",
      { class: "card" },
      html("h3", {}, t("head.softmax")),
      html("p", { class: "formula" }, t("head.saturation", saturation)),
      bars(shares, { most: 1 }),
    ),
  ];
}

function summed({ weights, output }, found, columns) {
  const high = largest(found.values);
  const rows = columns.map((name, n) => {
    const value = strip([found.values[n]], high, `v ${name}`);
    value.style.opacity = String(0.15 + 0.85 * weights[n] ** 0.5);
    return html("div", { class: "strip-row" }, html("span", {}, name), value);
  });
  const result = html("div", { class: "strip-row result" }, html("span", {}, "Σ"), strip([output], high, "Σ"));
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("head.sum")),
    html("p", { class: "formula" }, `Σ ${t("head.weight")} · ${isAdditive(found) ? "h" : "v"}  →  1 × ${output.length}`),
    html("div", { class: "sum" }, rows, result),
  );
}

/** Draw a slider for the scale, and explain the scale for this model. */
function scaling(found, follow) {
  const { d_k: size, scale: usual, score } = found;
  const told = html("output");
  const root = 1 / Math.sqrt(size);
  const tell = scale => {
    const named = Math.abs(scale - root) < 1e-6 ? ` = 1/√${size}` : "";
    told.textContent = `${number(scale, 4)} = 1/${number(1 / scale, 2)}${named}`;
    follow(scale);
  };
  const at = chosenScale() ?? usual;
  const slider = html("input", {
    type: "range",
    min: -2.5,
    max: 0.5,
    step: 0.01,
    value: Math.log10(at),
    "data-key": "scale",
    "aria-label": t("head.scale"),
    oninput: event => tell(10 ** Number(event.target.value)),
    onchange: event => set({ scale: (10 ** Number(event.target.value)).toFixed(5) }),
  });
  tell(at);
  const [why, back] = score === "dot" ? ["head.scale.dot", "head.usual.dot"] : ["head.scale.why", "head.usual"];
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("head.scale")),
    html("p", { class: "soft" }, t(why, { size, root: number(Math.sqrt(size), 2) })),
    html("label", { class: "slider" }, slider, told),
    html("button", { class: "link", "data-key": "usual", onclick: () => set({ scale: "" }) }, t(back, { size })),
  );
}

/** Explain an additive score, which has no scale because tanh bounds its terms. */
function bounded(found, follow) {
  follow(found.scale);
  const most = found.vector.reduce((sum, v) => sum + Math.abs(v), 0);
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("head.unscaled")),
    html("p", { class: "soft", "data-most": most }, t("head.scale.additive", { most: number(most, 2) })),
  );
}

/** Show the steps of equation 1. Steps 1 and 2 have the model's numbers; from the scale on, all follow the slider. */
function steps(found, rows, columns, numbers) {
  const query = within(state.query, rows.length - 1);
  const open = found.mask[query];
  const products = found.keys.map(key => compared(found, found.queries[query], key));
  const place = html("div", { class: "columns three" });
  const column = k => found.values.map(value => value[k]);
  const follow = scale => {
    const scores = products.map(product => product * scale);
    const weights = weighed(scores, open);
    const output = found.values[0].map((_, k) => dot(weights, column(k)));
    const now = { query: rows[query], keys: columns, products, scale, scores, weights, output };
    Object.assign(numbers, now);
    place.replaceChildren(...scored(now, found, columns, open), summed(now, found, columns));
  };
  return [
    vectors(found, query, products, rows, columns),
    (isAdditive(found) ? bounded : scaling)(found, follow),
    place,
  ];
}

function whole({ look, askSame, later }) {
  const scale = chosenScale();
  if (scale === undefined) return html("p", { class: "soft" }, t("head.whole.none"));
  return later(askSame({ score_scale: scale }), answer =>
    versus(look, answer, t("head.as-trained"), t("head.with-scale", { scale: number(scale, 4) })),
  );
}

export function draw(body, context) {
  const chosen = chosenHead(context.look);
  if (!chosen) return withoutAttention(body, context);
  const { model } = context.model;
  const [rows, columns] = namesOf(chosen.site, context);
  const numbers = { ...chosen };
  const hasScale = !isRecurrent(model) || model.score !== "additive";
  body.append(
    pickers(context, chosen, rows),
    context.later(context.askHead(chosen), found => steps(found, rows, columns, numbers)),
    hasScale ? html("section", { class: "card wide" }, html("h3", {}, t("head.whole")), whole(context)) : "",
  );
  return numbers;
}
