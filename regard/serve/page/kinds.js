// What a model is and what it has: nobody must be told of what is not there.

export const isRecurrent = model => model.kind.startsWith("rnn");
export const hasPositions = model => !isRecurrent(model) && model.positions !== "none";
export const hasCausalMask = model => !isRecurrent(model) && model.ablation !== "causal-mask";

/** What the names of its own words end with, the nearest first: not every model is as the paper's. */
export function variants(model) {
  if (isRecurrent(model)) return [model.kind, "recurrent"];
  return [`without-${model.ablation}`, ...(model.positions === "none" ? ["without-positions"] : [])];
}
