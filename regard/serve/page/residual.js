// View 9: the residual stream, the prediction from each layer, and the units of the feed-forward networks.

import { html, legend, lines, matrix, mean, number, percent } from "./drawing.js";
import { isRecurrent } from "./kinds.js";
import { set, state, within } from "./state.js";
import { named, t, tOf } from "./words.js";

/** Return the names of a stack's rows: sub-layers; for RNNs, layers or, in the decoder, the last state and the read-out. */
function stages(stack, model) {
  const layers = model[`${stack}_layers`];
  if (isRecurrent(model)) {
    const states = Array.from({ length: layers }, (_, n) => t("layer", { n: n + 1 }));
    const above = stack === "encoder" ? states : [t("residual.state"), t("residual.readout")];
    return [t("residual.embedding"), ...above];
  }
  const parts = stack === "encoder" ? ["self", "ffn"] : ["self", "cross", "ffn"];
  return [
    t("residual.embedding"),
    ...Array.from({ length: layers }, (_, n) => parts.map(part => `${n + 1} ${t(`part.${part}`)}`)).flat(),
  ];
}

/** Return curves of the norms over sub-layers or, for an RNN, of its last layer's states over words. */
function curvesOf(values, rows, stack, model) {
  if (isRecurrent(model)) {
    const at = stack === "encoder" ? values.length - 1 : 1;
    return [{ name: rows[at], points: values[at].map((value, n) => [n, value]) }];
  }
  return [
    { name: t("residual.mean"), points: values.map((row, n) => [n, mean(row)]) },
    { name: t("residual.largest"), points: values.map((row, n) => [n, Math.max(...row)]) },
  ];
}

function norms(look, stack, model, names) {
  const values = look.residuals[stack];
  const rows = stages(stack, model);
  const size = model.d_state * (stack === "encoder" && model.kind === "rnn-attention" ? 2 : 1);
  const why = isRecurrent(model) ? "residual.norms" : `residual.norms.${model.norm}`;
  const low = Math.min(...values.flat());
  const high = Math.max(...values.flat());
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("residual.norms")),
    html("p", { class: "soft" }, tOf(why, model, { size, root: number(Math.sqrt(size), 2) })),
    html(
      "div",
      { class: "columns" },
      html(
        "div",
        {},
        matrix({
          values,
          rows,
          columns: names,
          label: t("residual.norms"),
          low,
          high,
          cell: Math.max(12, Math.min(26, 420 / names.length)),
          tell: (row, column, value) => `${rows[row]}, ${names[column]}: ‖x‖ = ${number(value, 3)}`,
        }),
        legend(number(low, 2), number(high, 2)),
      ),
      lines({
        curves: curvesOf(values, rows, stack, model),
        label: t("residual.norms"),
        axis: tOf("residual.sublayer", model),
        bottom: 0,
        dots: true,
      }),
    ),
  );
}

function lens(look, outputs, model) {
  const rows = look.lens.map((places, layer) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, layer ? t("layer", { n: layer }) : t("residual.embedding")),
      places.map((one, n) => {
        const cell = html(
          "td",
          {
            class: `tinted${one.piece === look.predictions[n].piece ? " same" : ""}`,
            title: t("residual.own", { piece: outputs[n], share: percent(one.own) }),
            "data-prob": one.prob,
            "data-own": one.own,
          },
          html("span", {}, named(one.piece)),
          html("small", {}, percent(one.prob)),
        );
        cell.style.setProperty("--share", `${Math.round(100 * one.prob)}%`);
        return cell;
      }),
    ),
  );
  const head = html(
    "tr",
    {},
    html("th", {}, t("residual.taken")),
    outputs.map(name => html("th", {}, name === "</s>" ? "■" : name)),
  );
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("residual.lens")),
    html("p", { class: "soft" }, t("residual.lens.why")),
    model.shared_embeddings !== "none" && html("p", { class: "soft" }, tOf("residual.lens.shared", model)),
    html(
      "div",
      { class: "scroll", "data-scroll": "lens" },
      html("table", { class: "side lens" }, html("thead", {}, head), html("tbody", {}, rows.reverse())),
    ),
  );
}

function activations(look, stack, model, names) {
  const shares = look.activations[stack];
  const most = shares.length - 1;
  const layer = state.layer === "" ? most : within(state.layer, most);
  const rows = shares.map((_, n) => t("layer", { n: n + 1 }));
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("residual.ffn")),
    html("p", { class: "formula" }, t(`residual.ffn.${model.activation}`)),
    html("p", { class: "soft" }, t("residual.ffn.why", { size: model.d_ff })),
    html(
      "div",
      { class: "columns" },
      html(
        "div",
        {},
        html("h4", {}, t("residual.share")),
        matrix({
          values: shares,
          rows,
          columns: names,
          label: t("residual.share"),
          cell: Math.max(12, Math.min(26, 420 / names.length)),
          high: Math.max(...shares.flat()),
          pick: row => set({ layer: row }),
          tell: (row, column, value) =>
            t("residual.share.tell", {
              layer: rows[row],
              name: names[column],
              share: percent(value),
              count: Math.round(value * model.d_ff),
            }),
        }),
        legend(percent(0), percent(Math.max(...shares.flat()))),
      ),
      html(
        "div",
        {},
        html("h4", {}, t("residual.units", { n: layer + 1 })),
        html(
          "div",
          { class: "choices" },
          shares.map((_, n) =>
            html(
              "button",
              { "aria-pressed": String(n === layer), "data-key": `ffn-${n}`, onclick: () => set({ layer: n }) },
              n + 1,
            ),
          ),
        ),
        strongest(look.units[stack][layer], names, t("residual.units", { n: layer + 1 })),
      ),
    ),
  );
}

function strongest({ units, values }, names, label) {
  return matrix({
    values,
    rows: units.map(unit => `#${unit}`),
    columns: names,
    label,
    cell: Math.max(12, Math.min(18, 420 / names.length)),
    high: Math.max(...values.flat()),
    tell: (row, column, value) => `#${units[row]}, ${names[column]}: ${number(value, 3)}`,
  });
}

export function draw(body, { look, model, sources, inputs, outputs }) {
  const stack = state.stack === "encoder" ? "encoder" : "decoder";
  const names = stack === "encoder" ? sources : inputs;
  body.append(
    html(
      "div",
      { class: "choices" },
      ["encoder", "decoder"].map(one =>
        html(
          "button",
          { "aria-pressed": String(one === stack), "data-key": `stack-${one}`, onclick: () => set({ stack: one }) },
          t(`stack.${one}`),
        ),
      ),
    ),
    norms(look, stack, model.model, names),
    ...(isRecurrent(model.model)
      ? []
      : [lens(look, outputs, model.model), activations(look, stack, model.model, names)]),
  );
  return {
    stack,
    residual_norms: look.residuals[stack],
    lens: look.lens,
    activations: look.activations[stack],
    units: look.units[stack],
  };
}
