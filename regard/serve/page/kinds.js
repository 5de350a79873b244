// Properties of a model by its kind and ablation, so that no view describes a part that the model lacks.

export const isRecurrent = model => model.kind.startsWith("rnn");
export const hasPositions = model => !isRecurrent(model) && model.positions !== "none";
export const hasCausalMask = model => !isRecurrent(model) && model.ablation !== "causal-mask";

/** Return the suffixes of the names of a model's own texts, the most specific first. */
export function variants(model) {
  if (isRecurrent(model)) return [model.kind, "recurrent"];
  return [`without-${model.ablation}`, ...(model.positions === "none" ? ["without-positions"] : [])];
}
