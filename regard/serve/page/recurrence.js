// The RNN encoder–decoder, drawn from its configuration: with one fixed vector between its halves, or with attention.

import { GAP, TALL, WIDE, arrow, box, end, ground, path, shape, times } from "./blocks.js";
import { mean, number, svg, whole } from "./drawing.js";
import { FORMULAS as COMMON, common, linearFormula } from "./transformer.js";
import { t, tOf } from "./words.js";

const ENCODER = 190;
const MIDDLE = 440;
const DECODER = 700;
const LEFT = 36;
const WIDTH = 818;
const BETWEEN = 128; // from an embedding to the states above it, where the first state is drawn beside them
const HALF = 134; // width of a block of one of two directions
const NARROW = 124; // width of a block between the stacks
const VIEW_OF = {
  inputs: "subwords",
  outputs: "decoding",
  embedding: "subwords",
  forwards: "residual",
  backwards: "residual",
  fixed: "heads",
  bridge: "residual",
  cross: "heads",
  cell: "residual",
  readout: "residual",
  linear: "residual",
  softmax: "decoding",
  result: "beam",
};
const ONLY = { fixed: "rnn", cross: "rnn-attention", backwards: "rnn-attention" };
const hasAttention = model => model.kind === "rnn-attention";

/** Return the sizes of shapes. M is the width of the encoder's output, or of C: doubled if it reads in both directions. */
export function shapes(model, look) {
  const Q = model.d_state;
  return {
    S: look.source.pieces.length + 1,
    T: look.target.pieces.length + 1,
    D: model.d_model,
    Q,
    M: hasAttention(model) ? 2 * Q : Q,
    V: model.tgt_vocab_size,
  };
}

function inside(kind, where, z, model) {
  const layers = model.decoder_layers;
  if (kind === "embedding") return `${whole(where === "encoder" ? model.src_vocab_size : z.V)} × ${z.D}`;
  if (kind === "forwards" || kind === "backwards") return `${z.S} × ${z.Q}`;
  if (kind === "fixed") return `1 × ${z.M}`;
  if (kind === "cross") return `${z.T} × ${z.S}`;
  if (kind === "bridge") return `${z.M} → ${layers} × ${z.Q}`;
  if (kind === "cell") return `${z.D} + ${z.M} → ${z.Q}`;
  if (kind === "readout") return `${z.Q} + ${z.D} + ${z.M} → ${z.D}`;
  return kind === "linear" ? `${z.D} × ${whole(z.V)}` : "";
}

const nameOf = (kind, model) => tOf(`map.${kind}`, model, { cell: model.cell.toUpperCase() });

function node(kind, where, x, y, z, model, width = WIDE) {
  return box(`${kind}.${where}`, model, { x, y, width, name: nameOf(kind, model), inside: inside(kind, where, z, model) });
}

/** Draw the loop from a state to the state at the next word: out at the top, in at the side. */
function loop(x, y, outward, label) {
  const [edge, side] = [x + outward * (WIDE / 2 - 24), x + outward * (WIDE / 2 + 18)];
  return [
    path(`M${edge} ${y}V${y - 16}H${side}V${y + TALL / 2}H${x + outward * (WIDE / 2 + 5)}`),
    shape(label, edge - outward * 4, y - 20, outward < 0 ? "start" : "end"),
  ];
}

/** Draw a stack's tokens and their embedding. Return where the states begin. */
function foot(picture, where, x, bottom, z, model) {
  const n = where === "encoder" ? z.S : z.T;
  const kind = where === "encoder" ? "inputs" : "outputs";
  const y = bottom - 24 - GAP - TALL;
  picture.append(
    end(`${kind}.${where}`, model, { x, y: bottom - 24, name: t(`map.${kind}`) }),
    ...arrow(x, bottom - 24, y + TALL, String(n)),
    node("embedding", where, x, y, z, model),
    shape(`${n} × ${z.D}`, x + 8, y - 14),
  );
  return y;
}

function stack(picture, where, x, y, layers) {
  const outward = where === "encoder" ? -1 : 1;
  const [left, wide] = [x - WIDE / 2 - 30, WIDE + 60];
  picture.append(svg("rect", { class: "stack", x: left, y: y - 42, width: wide, height: TALL + 58, rx: 14 }));
  picture.append(times(layers, x + outward * (WIDE / 2 + 26), y - 50, outward < 0 ? "start" : "end"));
}

/** Draw the encoder: one direction, or two side by side. */
function encoder(picture, y, from, z, model) {
  stack(picture, "encoder", ENCODER, y, model.encoder_layers);
  if (!hasAttention(model)) {
    picture.append(
      ...arrow(ENCODER, from, y + TALL),
      node("forwards", "encoder", ENCODER, y, z, model),
      ...loop(ENCODER, y, -1, "hⱼ₋₁"),
      path(`M${ENCODER + WIDE / 2} ${y + TALL / 2}H${MIDDLE - NARROW / 2 - 6}`),
      shape("h_S", ENCODER + WIDE / 2 + 36, y + TALL / 2 - 7),
      shape(t("map.only-last"), ENCODER, y - 52, "middle"),
    );
    return;
  }
  const [left, right] = [ENCODER - HALF / 2 - 4, ENCODER + HALF / 2 + 4];
  const under = y + TALL + 34;
  picture.append(
    path(`M${ENCODER} ${from}V${under}H${left}V${y + TALL + 6}`),
    path(`M${ENCODER} ${under}H${right}V${y + TALL + 6}`),
    node("forwards", "encoder", left, y, z, model, HALF),
    node("backwards", "encoder", right, y, z, model, HALF),
    svg("path", { class: "arrow", d: `M${left} ${y}V${y - 18}H${right}V${y}` }),
    path(`M${ENCODER} ${y - 18}V${y - 56}H${ENCODER + WIDE / 2 + 44}V${y + TALL / 2}H${MIDDLE - NARROW / 2 - 6}`),
    shape(`h₁ … h_S: ${z.S} × ${z.M}`, ENCODER + 6, y - 62),
  );
}

/** Draw what is between the stacks: what the decoder sees of the source, and its first state. */
function between(picture, y, z, model) {
  const kind = hasAttention(model) ? "cross" : "fixed";
  const bridge = y + TALL + 46;
  const [start, first] = [bridge + TALL / 2, DECODER - WIDE / 4];
  const context = hasAttention(model) ? `cᵢ: ${z.T} × ${z.M}` : `${z.T} × C`;
  picture.append(
    node(kind, "decoder", MIDDLE, y, z, model, NARROW),
    path(`M${MIDDLE + NARROW / 2} ${y + TALL / 2}H${DECODER - WIDE / 2 - 6}`),
    shape(context, MIDDLE + NARROW / 2 + 3, y + TALL / 2 + 17),
    node("bridge", "decoder", MIDDLE, bridge, z, model, NARROW),
    path(`M${MIDDLE + NARROW / 2} ${start}H${first}V${y + TALL + 6}`),
    shape("s₀", first - 6, start - 8, "end"),
  );
  if (hasAttention(model))
    picture.append(
      path(`M${DECODER - WIDE / 2 + 24} ${y}V${y - 24}H${MIDDLE}V${y - 6}`),
      shape("sᵢ₋₁", MIDDLE + 8, y - 30),
      path(`M${ENCODER + WIDE / 2 + 44} ${y + TALL / 2}V${start}H${MIDDLE - NARROW / 2 - 6}`),
    );
  else picture.append(path(`M${MIDDLE} ${y + TALL}V${bridge - 6}`));
}

export function figure(model, look) {
  const z = shapes(model, look);
  const picture = ground(t("map.title"));
  const bottom = 700;
  const from = foot(picture, "encoder", ENCODER, bottom, z, model);
  foot(picture, "decoder", DECODER, bottom, z, model);
  const y = from - BETWEEN - TALL;
  encoder(picture, y, from, z, model);
  stack(picture, "decoder", DECODER, y, model.decoder_layers);
  between(picture, y, z, model);
  const readout = y - 42 - GAP - TALL;
  const linear = readout - GAP - TALL;
  const softmax = linear - GAP - TALL;
  picture.append(
    ...arrow(DECODER, from, y + TALL),
    node("cell", "decoder", DECODER, y, z, model),
    ...loop(DECODER, y, 1, "sᵢ₋₁"),
    ...arrow(DECODER, y, readout + TALL, `${z.T} × ${z.Q}`, -1),
    node("readout", "decoder", DECODER, readout, z, model),
    ...arrow(DECODER, readout, linear + TALL, `${z.T} × ${z.D}`, -1),
    node("linear", "decoder", DECODER, linear, z, model),
    ...arrow(DECODER, linear, softmax + TALL, `${z.T} × ${whole(z.V)}`, -1),
    node("softmax", "decoder", DECODER, softmax, z, model),
    ...arrow(DECODER, softmax, softmax - 40, `${z.T} × ${whole(z.V)}`, -1),
    end("result.decoder", model, { x: DECODER, y: softmax - 72, name: t("map.result") }),
  );
  picture.setAttribute("viewBox", `${LEFT} ${softmax - 76} ${WIDTH} ${bottom + 12 - softmax + 76}`);
  return picture;
}

const CELLS = {
  lstm: "i, f, o = σ(W x + U h + b);  g = tanh(W′x + U′h + b′);  c = f ⊙ c + i ⊙ g;  h = o ⊙ tanh(c)",
  gru: "r, z = σ(W x + U h + b);  n = tanh(W′x + b′ + r ⊙ (U′h + b″));  h = (1 − z) ⊙ n + z ⊙ h",
};
const SCORES = {
  additive: "eᵢⱼ = vᵀ tanh(W_q sᵢ₋₁ + W_k hⱼ)",
  dot: "eᵢⱼ = (W_q sᵢ₋₁)·(W_k hⱼ)",
  scaled: "eᵢⱼ = (W_q sᵢ₋₁)·(W_k hⱼ) / √d_k",
};

function formulaOf(kind, model) {
  if (kind === "forwards" || kind === "backwards" || kind === "cell") return CELLS[model.cell];
  if (kind === "fixed") return "C = h_S";
  if (kind === "cross") return `${SCORES[model.score]};  αᵢⱼ = softmaxⱼ(eᵢⱼ);  cᵢ = Σⱼ αᵢⱼ hⱼ`;
  if (kind === "bridge") {
    const read = hasAttention(model) ? "[h→_S; h←₁]" : "C";
    return `s₀ = tanh(W ${read} + b)${model.cell === "lstm" ? ";  c₀ = 0" : ""}`;
  }
  if (kind === "readout") return `x = tanh(W [sᵢ; yᵢ₋₁; ${hasAttention(model) ? "cᵢ" : "C"}] + b)`;
  return kind === "linear" ? linearFormula(model) : COMMON[kind];
}

/** Return this sentence's numbers for a block. */
function facts(kind, where, model, look) {
  const z = shapes(model, look);
  const lengths = look.residuals[where].map(row => number(mean(row), 2));
  const norms = { cell: lengths[1], readout: lengths[2] }[kind] ?? lengths.slice(1).join(", ");
  return {
    ...z,
    n: where === "encoder" ? z.S : z.T,
    cell: model.cell.toUpperCase(),
    root: number(Math.sqrt(z.D), 2),
    layers: model[`${where}_layers`],
    entropies: look.attention.cross.map(one => number(mean(one.entropy.flat()), 2)).join(", "),
    most: number(Math.log(z.S), 2),
    norm_first: lengths[0],
    norms,
    length: number(Math.hypot(...look.fixed), 2),
    ...common(where, look),
  };
}

/** Describe a block: its name and formula, the formula in numbers, and the view to open. */
export function about(id, model, look) {
  const [asked, stack] = id.split(".");
  const isThere = Object.hasOwn(VIEW_OF, asked) && (!ONLY[asked] || ONLY[asked] === model.kind);
  const kind = isThere ? asked : hasAttention(model) ? "cross" : "fixed";
  const where = isThere && stack === "encoder" ? "encoder" : "decoder";
  const reason = kind === "linear" && model.shared_embeddings === "none" ? "map.linear.own" : `map.${kind}.why`;
  const reads = kind === "bridge" ? "encoder" : where;
  return {
    name: nameOf(kind, model),
    formula: formulaOf(kind, model),
    words: tOf(reason, model, facts(kind, where, model, look)),
    open: { view: VIEW_OF[kind], stack: reads },
  };
}

/** Describe the rest of the configuration in a sentence. */
export function summary(model, parameters) {
  const told = { parameters, cell: model.cell.toUpperCase(), Q: model.d_state, score: t(`score.${model.score}`) };
  return tOf("map.model", model, told);
}
