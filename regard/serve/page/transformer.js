// Figure 1, drawn from a Transformer's configuration, without the parts that an ablation removed.

import { GAP, TALL, WIDE, arrow, block, box, end, ground, path, shape, times } from "./blocks.js";
import { mean, number, percent, svg, whole } from "./drawing.js";
import { hasCausalMask, hasPositions } from "./kinds.js";
import { state } from "./state.js";
import { t, tOf } from "./words.js";

const ENCODER = 196;
const DECODER = 586;
const WIDTH = 790;
const VIEW_OF = {
  inputs: "subwords",
  outputs: "decoding",
  embedding: "subwords",
  positions: "positions",
  self: "heads",
  masked: "masks",
  cross: "heads",
  add: "residual",
  norm: "residual",
  ffn: "residual",
  linear: "residual",
  softmax: "decoding",
  result: "beam",
};
const SITE_OF = { self: "encoder", masked: "decoder", cross: "cross" };
const SUBLAYERS = { encoder: ["self", "ffn"], decoder: ["masked", "cross", "ffn"] };

/** Return a layer's blocks from the bottom up: sub-layers, norms and, unless they are ablated, residual connections. */
function layerBlocks(sublayers, { norm, ablation }) {
  const isPre = norm === "pre";
  if (ablation === "residual")
    return sublayers.flatMap((kind, sublayer) =>
      isPre ? [{ kind: "norm", sublayer }, { kind }] : [{ kind }, { kind: "norm", sublayer }],
    );
  return sublayers.flatMap((kind, sublayer) =>
    isPre
      ? [{ kind: "norm", sublayer, opens: true }, { kind }, { kind: "add", sublayer, closes: true }]
      : [
          { kind, opens: true },
          { kind: "add", sublayer, closes: true },
        ],
  );
}

export function shapes(model, look) {
  const S = look.source.pieces.length + 1;
  const T = look.target.pieces.length + 1;
  return {
    S,
    T,
    D: model.d_model,
    H: model.num_heads,
    K: model.d_model / model.num_heads,
    F: model.d_ff,
    V: model.tgt_vocab_size,
  };
}

function inside(kind, where, z, model) {
  if (kind === "self") return `${z.H} × (${z.S} × ${z.K}) → ${z.H} × ${z.S} × ${z.S}`;
  if (kind === "masked") return `${z.H} × (${z.T} × ${z.K}) → ${z.H} × ${z.T} × ${z.T}`;
  if (kind === "cross") return `${z.H} × (${z.T} × ${z.K}) → ${z.H} × ${z.T} × ${z.S}`;
  if (kind === "ffn") return `${z.D} → ${z.F} → ${z.D}`;
  if (kind === "embedding") return `${whole(where === "encoder" ? model.src_vocab_size : z.V)} × ${z.D}`;
  return kind === "linear" ? `${z.D} × ${whole(z.V)}` : "";
}

const nameOf = (kind, model) =>
  kind === "add" ? t(model.norm === "pre" ? "map.add" : "map.add-norm") : tOf(`map.${kind}`, model);

function blockNode(kind, x, y, z, model, where, sublayer) {
  const id = sublayer === undefined ? `${kind}.${where}` : `${kind}.${where}.${sublayer}`;
  return box(id, model, { x, y, name: nameOf(kind, model), inside: inside(kind, where, z, model) });
}

/** Draw the addition of positions to the embeddings, if the model has positions. Return where the stack begins. */
function addition(picture, where, x, y, model) {
  const outward = where === "encoder" ? -1 : 1;
  const plus = y - GAP - 8;
  if (!hasPositions(model)) return { to: y, from: y };
  picture.append(
    svg("circle", { class: "plus", cx: x, cy: plus, r: 10 }),
    svg("text", { x, y: plus + 5, "text-anchor": "middle", class: "name" }, "+"),
    positionsNode(x + outward * 118, plus, where, x + outward * 10, model),
  );
  return { to: plus + 9, from: plus - 10 };
}

/** Draw a stack from its tokens up. Return where its blocks are. */
function column(picture, where, x, bottom, z, model) {
  const n = where === "encoder" ? z.S : z.T;
  const width = `${n} × ${z.D}`;
  const outward = where === "encoder" ? -1 : 1;
  const inward = -outward; // the side without residual connections
  const y = bottom - 24 - GAP - TALL;
  const kind = where === "encoder" ? "inputs" : "outputs";
  picture.append(
    end(`${kind}.${where}`, model, { x, y: bottom - 24, name: t(`map.${kind}`) }),
    ...arrow(x, bottom - 24, y + TALL, String(n), inward),
    blockNode("embedding", x, y, z, model, where),
  );
  const { to, from } = addition(picture, where, x, y, model);
  if (to < y) picture.append(...arrow(x, y, to, width, inward));
  const found = layer(picture, where, x, from, z, model);
  const groupBottom = from - GAP + 8;
  const height = groupBottom - found.top;
  picture.prepend(
    svg("rect", { class: "stack", x: x - WIDE / 2 - 30, y: found.top - 14, width: WIDE + 60, height: height + 14, rx: 14 }),
  );
  const beside = x + outward * (WIDE / 2 + 40);
  picture.append(times(model[`${where}_layers`], beside, found.top + height / 2, outward < 0 ? "end" : "start"));
  if (model.norm !== "pre") return found;
  const top = found.top - GAP - 8 - TALL;
  picture.append(
    ...arrow(x, found.top, top + TALL, width, inward),
    blockNode("norm", x, top, z, model, where, SUBLAYERS[where].length),
  );
  return { ...found, top };
}

/** Draw the blocks of one layer, each sub-layer with its residual connection. */
function layer(picture, where, x, bottom, z, model) {
  const width = `${where === "encoder" ? z.S : z.T} × ${z.D}`;
  const outward = where === "encoder" ? -1 : 1;
  const found = { top: bottom };
  let opened = bottom;
  layerBlocks(SUBLAYERS[where], model).forEach(({ kind, sublayer, opens, closes }, index) => {
    const top = found.top - GAP - (index === 0 ? 10 : 0) - TALL;
    if (opens) opened = top + TALL + 14;
    picture.append(...arrow(x, found.top, top + TALL, width, -outward));
    if (closes) {
      const [side, edge] = [x + outward * (WIDE / 2 + 16), x + outward * (WIDE / 2 + 5)];
      picture.append(path(`M${x} ${opened}H${side}V${top + TALL / 2}H${edge}`, " bypass"));
    }
    picture.append(blockNode(kind, x, top, z, model, where, sublayer));
    found[kind] ??= top;
    found.top = top;
  });
  return found;
}

function positionsNode(x, y, where, to, model) {
  const wave = Array.from(
    { length: 25 },
    (_, n) => `${x - 12 + n} ${(y + 7 * Math.sin((n / 24) * 2 * Math.PI)).toFixed(1)}`,
  ).join("L");
  const edge = x < to ? x + 17 : x - 17;
  return block(
    `positions.${where}`,
    model,
    "wave",
    t("map.positions"),
    svg("circle", { cx: x, cy: y, r: 17 }),
    svg("path", { d: `M${wave}`, fill: "none" }),
    path(`M${edge} ${y}H${to < x ? to + 6 : to - 6}`),
  );
}

export function figure(model, look) {
  const z = shapes(model, look);
  const height = (model.norm === "pre" ? 9 : 6) * (TALL + GAP) + (model.norm === "pre" ? 530 : 452);
  const bottom = height - 12;
  const picture = ground(t("map.title"));
  const encoder = column(picture, "encoder", ENCODER, bottom, z, model);
  const decoder = column(picture, "decoder", DECODER, bottom, z, model);
  const linear = decoder.top - GAP - 8 - TALL;
  const softmax = linear - GAP - TALL;
  const cross = decoder.cross + TALL / 2;
  picture.append(
    ...arrow(DECODER, decoder.top, linear + TALL, `${z.T} × ${z.D}`, -1),
    blockNode("linear", DECODER, linear, z, model, "decoder"),
    ...arrow(DECODER, linear, softmax + TALL, `${z.T} × ${whole(z.V)}`, -1),
    blockNode("softmax", DECODER, softmax, z, model, "decoder"),
    ...arrow(DECODER, softmax, softmax - 40, `${z.T} × ${whole(z.V)}`, -1),
    end("result.decoder", model, { x: DECODER, y: softmax - 72, name: t("map.result") }),
  );
  picture.setAttribute("viewBox", `0 ${softmax - 76} ${WIDTH} ${height - softmax + 76}`);
  const over = encoder.top - 40;
  const side = (ENCODER + DECODER) / 2 + 2;
  picture.append(
    path(`M${ENCODER} ${encoder.top}V${over}H${side}V${cross}H${DECODER - WIDE / 2 - 5}`),
    shape(`${t("map.memory")} ${z.S} × ${z.D}`, ENCODER + 10, over - 8),
    shape("K, V", side + 7, cross - 7),
  );
  return picture;
}

/** Return this sentence's numbers for a block, which replace the letters of its formula. */
function facts(kind, where, sublayer, model, look) {
  const z = shapes(model, look);
  const residuals = look.residuals[where];
  const site = SITE_OF[kind];
  const each = SUBLAYERS[where].length;
  const after = residuals.filter((_, n) => n && (n - 1) % each === sublayer); // the first is the embedding
  return {
    ...z,
    n: where === "encoder" ? z.S : z.T,
    root: number(Math.sqrt(z.D), 2),
    root_k: number(Math.sqrt(z.K), 2),
    layers: model[`${where}_layers`],
    entropies: site && look.attention[site].map(one => number(mean(one.entropy.flat()), 2)).join(", "),
    most: number(Math.log(kind === "masked" ? z.T : z.S), 2),
    part: t(`part.${SUBLAYERS[where][sublayer].replace("masked", "self")}`),
    norm_first: number(mean(residuals[0]), 2),
    norms: after.map(row => number(mean(row), 2)).join(", "),
    active: look.activations[where].map(one => percent(mean(one))).join(", "),
    ...common(where, look),
  };
}

/** Return the numbers of a sentence that all models have. */
export function common(where, look) {
  const text = where === "encoder" ? look.source : look.target;
  const [first] = look.predictions;
  const [best] = look.search.hypotheses;
  return {
    pieces: text.pieces.slice(0, 4).join(" "),
    ids: text.ids.slice(0, 4).join(", "),
    first: first.piece.replaceAll("▁", ""),
    prob: percent(Math.exp(first.log_prob)),
    log_prob: number(look.log_prob, 2),
    W: state.beam,
    ends: look.search.hypotheses.length,
    best: best.text,
    best_log: number(best.log_prob, 2),
    best_score: number(best.score, 2),
  };
}

export const FORMULAS = {
  inputs: "text → (id₁, …, id_S)",
  outputs: "(<s>, y₁, …, y_T−1) → (y₁, …, </s>)",
  embedding: "x = E[id] · √d_model",
  norm: "LayerNorm(x) = γ (x − μ) / √(σ² + ε) + β",
  softmax: "P(y) = exp(z_y) / Σ exp(z)",
  result: "score(Y) = log P(Y) / ((5 + |Y|) / 6)^α",
};
const SHARED = {
  "query-key": ";  W_Q = W_K",
  "key-value": ";  W_K = W_V",
  projections: ";  W_Q = W_K = W_V = I",
};

export const linearFormula = model =>
  `z = x ${model.shared_embeddings === "none" ? "W" : "E"}ᵀ${model.output_bias ? " + b" : ""}`;

function attentionFormula(kind, model) {
  const scale = model.ablation === "scale" ? "" : " / √d_k";
  const mask = kind === "masked" && hasCausalMask(model) ? " + mask" : "";
  return `softmax(Q Kᵀ${scale}${mask}) V${kind === "cross" ? ";  K, V ← encoder" : ""}${SHARED[model.ablation] ?? ""}`;
}

function formulaOf(kind, model) {
  if (SITE_OF[kind]) return attentionFormula(kind, model);
  if (kind === "ffn") return t(`residual.ffn.${model.activation}`);
  if (kind === "add") return model.norm === "pre" ? "x + Sublayer(LayerNorm(x))" : "LayerNorm(x + Sublayer(x))";
  if (kind === "linear") return linearFormula(model);
  if (kind === "positions")
    return model.positions === "learned"
      ? "x = E[id] · √d_model + P[pos]"
      : "PE(pos, 2i) = sin(pos / 10000^(2i/d));  PE(pos, 2i+1) = cos(…)";
  return FORMULAS[kind];
}

/** Return the name of the text that explains a block in this model. */
function reasonOf(kind, where, model) {
  if (kind === "add") return model.norm === "pre" ? "map.add.why" : "map.add-norm.why";
  if (kind === "linear" && model.shared_embeddings === "none") return "map.linear.own";
  if (kind === "positions") return `map.positions.${hasCausalMask(model) ? where : "encoder"}.${model.positions}`;
  return `map.${kind}.why`;
}

/** Return whether the model has such a block. The address may come from another model. */
function has(kind, model) {
  if (kind === "positions") return hasPositions(model);
  if (kind === "add") return model.ablation !== "residual";
  return Object.hasOwn(VIEW_OF, kind);
}

/** Describe a block: its name and formula, the formula in numbers, and the view to open. */
export function about(id, model, look) {
  const [asked, stack, nth] = id.split(".");
  const kind = has(asked, model) ? asked : "cross";
  const where = stack === "encoder" ? "encoder" : "decoder";
  const sublayer = /^\d+$/.test(nth) ? Math.min(Number(nth), SUBLAYERS[where].length - 1) : 0;
  const site = SITE_OF[kind];
  const view = VIEW_OF[kind];
  return {
    name: nameOf(kind, model),
    formula: formulaOf(kind, model),
    words: tOf(reasonOf(kind, where, model), model, facts(kind, where, sublayer, model, look)),
    open: { view, stack: where, ...(site && { site, layer: "" }) },
  };
}

/** Describe the rest of the configuration in a sentence. */
export function summary(model, parameters) {
  const told = {
    parameters,
    norm: t(`model.${model.norm}`),
    positions: t(`model.${model.positions}`),
    activation: t(`model.${model.activation}`),
  };
  const taken = model.ablation === "none" ? "" : ` ${t("map.taken", { what: t(`ablation.${model.ablation}`) })}`;
  return t("map.model", told) + taken;
}
