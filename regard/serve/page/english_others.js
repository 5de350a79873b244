// Texts in English on models that differ from the paper's: RNNs, and Transformers without one of their parts.

export const englishOthers = {
  "translate.lead.rnn":
    "Translating is guessing the next word, again and again, from one vector that stands for the source and from what has been written so far. The more orange a word, the less sure the model was; click it to see what else it could have been.",
  "translate.looked.why.rnn":
    "This RNN has no attention. All that its decoder knows of the source is one vector of {size} numbers, the same at every word.",
  "translate.looked.why.rnn-attention": "The attention weights of the step that predicted it, source words only.",

  "map.lead.rnn":
    "This is the RNN encoder–decoder of Cho et al. and Sutskever et al. (2014), drawn from this model's own configuration, labelled with the tensor shapes of this sentence. It reads one word after the other, and once it has read the last one, all that it knows must be in one vector C, which is no larger for a longer sentence.",
  "map.lead.rnn-attention":
    "This is the RNN encoder–decoder with attention of Bahdanau et al. (2015), drawn from this model's own configuration, labelled with the tensor shapes of this sentence. Before each step the decoder's state is compared with every place of the source, and what the step sees is their weighted sum: a different one each time, whereas an RNN without attention has one vector for all steps.",
  "map.forwards": "{cell}, forwards",
  "map.backwards": "{cell}, backwards",
  "map.fixed": "The vector C",
  "map.bridge": "First state",
  "map.cross.rnn-attention": "Attention",
  "map.cell": "{cell}",
  "map.readout": "Read-out",
  "map.only-last": "only the last state goes on",
  "map.model.rnn": "This model: {parameters} parameters, {cell} with states of {Q} numbers, no attention.",
  "map.model.rnn-attention": "This model: {parameters} parameters, {cell} with states of {Q} numbers, {score}.",
  "score.additive": "additive scores",
  "score.dot": "scores by dot product",
  "score.scaled": "scores by scaled dot product",
  "map.embedding.why.recurrent":
    "Each id picks a row of {D} numbers, times √{D} = {root}. The result is {n} × {D}, and a row is {norm_first} long on average. No positions are added: an RNN reads in order.",
  "map.forwards.why":
    "{layers} × {cell}, from the first word to the last: each state of {Q} numbers is made of its word and of the state before. Layer by layer, states are {norms} long on average.",
  "map.forwards.why.rnn-attention":
    "{layers} × {cell}, from the first word to the last: each state of {Q} numbers is made of its word and of the state before. With those of the other direction beside them, states are {norms} long on average, layer by layer.",
  "map.backwards.why":
    "The same from the last word to the first, with weights of its own, so that a place knows what stands after it as well as what stands before. Both side by side are {S} × {M}; layer by layer, they are {norms} long on average.",
  "map.fixed.why":
    "All that the decoder will ever see of the source is the encoder's last state: {M} numbers for {S} tokens, a vector {length} long. A longer sentence gets no more room; this is the bottleneck that attention did away with.",
  "map.bridge.why.rnn":
    "What the decoder begins with: an affine map of C, then tanh, {M} → {layers} × {Q} numbers. After that, it sees C once more at each step.",
  "map.bridge.why.rnn-attention":
    "What the decoder begins with: an affine map of the last states of both directions, then tanh, {M} → {layers} × {Q} numbers.",
  "map.cross.why.rnn-attention":
    "Before each of {T} steps, the state of {Q} numbers is compared with each of {S} places. Softmax turns the scores into weights, {T} × {S} in all, by which the encoder's states are summed: {T} contexts of {M} numbers. Mean entropy: {entropies} nats (uniform: {most}).",
  "map.cell.why.rnn":
    "{T} steps, of which each needs the one before: {layers} × {cell} make the next state of {Q} numbers from the last one, the word that is fed in and, always the same, C. States are {norms} long on average.",
  "map.cell.why.rnn-attention":
    "{T} steps, of which each needs the one before: {layers} × {cell} make the next state of {Q} numbers from the last one, the word that is fed in and the context of this step. States are {norms} long on average.",
  "map.readout.why":
    "State, word and what is seen of the source, {Q} + {D} + {M} numbers, become {D}, as many as the output matrix takes. They are {norms} long on average.",

  "positions.lead.recurrent":
    "Attention is a sum, and a sum does not know the order of its terms, so a Transformer has to be told it. An RNN reads one word after the other, and each of its states is made of the one before: the order is there by itself.",
  "positions.none.title": "No positions",
  "positions.none.recurrent":
    "Nothing is added to the embeddings, and nothing can be switched off. The price: what the first word said reaches the last of these {n} states only through all the states between, and each step has to wait for the one before it.",
  "positions.none.without-positions":
    "This model was trained without positions: to its encoder this sentence is a bag of {n} tokens, and in another order each would get the same vector as in this one. What order there is comes from the decoder's causal mask alone.",

  "masks.lead.recurrent":
    "A mask hides what could be seen and must not be. An RNN's decoder has nothing to hide: a step is made of the state before it and the word that is fed in, and so it cannot see what it has not read.",
  "masks.padding.why.rnn-attention":
    "Attention sees the whole source at once, and there is something to hide there: this sentence beside one that is longer by {pads}. Blue may be attended to.",
  "masks.experiment.why.recurrent":
    "The same beginning with two different endings, in one pass each. What was predicted before the change stays as it was, to the last digit shown, and no mask is needed for it.",
  "masks.on.recurrent": "as it is",
  "masks.result.recurrent": "The largest change before the words differ: {kept}.",
  "masks.causal.why.without-causal-mask": "Taken out of this model: every place sees every other, later ones included.",
  "masks.both.why.without-causal-mask": "Without the causal mask, padding has to be masked in the decoder, too.",
  "masks.experiment.why.without-causal-mask":
    "The same beginning with two different endings, in one pass each. This model was trained without the causal mask: later words leak into earlier predictions, and it learnt to go by them.",
  "masks.on.without-causal-mask": "without causal mask",
  "masks.result.without-causal-mask": "The largest change before the words differ: {kept}.",
  "site.decoder.without-causal-mask": "Decoder",
  "site.decoder.why.without-causal-mask":
    "Self-attention over the target, words to come included: this model has no causal mask.",

  "heads.lead.rnn":
    "This model has no attention, and so no heads. All that its decoder knows of the source is one vector, whatever word it is about to say.",
  "heads.lead.rnn-attention":
    "Here there is one attention with one head: before each step, the decoder's state is compared with every place of the source. A row with low entropy H looks at one place; one with high entropy looks everywhere.",
  "heads.fixed":
    "{size} numbers, blue above 0, orange below: this is all that is left of {n} tokens. Attention was invented because for long sentences that is too little.",
  "site.cross.rnn-attention": "Attention",
  "site.cross.why.rnn-attention":
    "A row is a step, named after the word that is fed in: the query is the state before the step, the keys come from the source, and the step then predicts the next word.",
  "heads.one.title.rnn-attention": "What each step looks at",
  "heads.entropy.title.rnn-attention": "Entropy of each step's attention",
  "heads.all.rnn-attention": "with attention",
  "heads.effect.rnn-attention": "The model without its attention",
  "heads.effect.how.rnn-attention":
    "Switch it off, and all that the decoder has of the source is its first state: what becomes of the translation?",

  "head.lead.rnn":
    "This model has no attention: no query asks, no key answers, nothing is weighted. All that its decoder knows of the source is one vector, whatever word it is about to say.",
  "head.lead.rnn-attention":
    "The decoder's state asks with its query, every place of the source answers with its key, and what the step gets are the encoder's states, weighted by how well query and key agree. A score measures how well they agree: additive, as in Bahdanau et al., a dot product, or a dot product divided by √d_k, as in the Transformer.",
  "head.vectors.additive":
    "{size} numbers each; blue above 0, orange below. To the right, the scores e = vᵀ tanh(q + k), where v is a vector that was learnt.",
  "head.unscaled": "2. No scale",
  "head.scale.additive":
    "tanh is never beyond ±1, so a score of this model is never beyond ±Σ|v| = ±{most}, however many numbers there are: it needs no √d_k.",
  "head.scale.dot":
    "This model does not divide its scores by √{size} = {root}. Move the slider to see what softmax would do with other scales.",
  "head.usual.dot": "back to 1",

  "decoding.lead.recurrent":
    "In translation the decoder predicts one word at a time and gets its own predictions back as input, until it predicts the end: autoregression. In training its input is the right word, whatever it would have predicted: teacher forcing. An RNN goes through the words one by one in either case.",
  "decoding.lead.without-causal-mask":
    "In translation the decoder predicts one word at a time and gets its own predictions back as input, until it predicts the end: autoregression. In training its input is the right word: teacher forcing. Without the causal mask, one pass sees the words that it has to predict, so its result differs here from feeding the words one by one.",

  "residual.lead.recurrent":
    "An RNN has no residual stream and no feed-forward networks: what flows through it, from word to word, is its state. States have a width of their own, not that of the output matrix, so they cannot be read as words on the way, and there is no logit lens.",
  "residual.norms.recurrent":
    "‖x‖ after the embedding and after each layer. A state has {size} numbers between −1 and 1, so it is never longer than √{size} = {root}.",
  "residual.state": "state",
  "residual.readout": "read-out",
  "residual.sublayer.recurrent": "place",
  "residual.lead.without-residual":
    "In this model there is no stream: residual connections were taken out, and what a sub-layer computes takes the place of what came in. Each layer's state can still be read as if it were the last: the logit lens.",
  "residual.norms.post.without-residual":
    "‖x‖ after each sub-layer. This model normalises each sub-layer's output without adding it to the input, so the lengths are set by the gains it learnt.",
  "residual.norms.pre.without-residual":
    "‖x‖ after each sub-layer. This model adds nothing up: each length is that of the sub-layer's output alone.",
  "residual.lens.shared.without-positions":
    "The bottom row almost always shows the word that was fed in, at about 100 %: the matrix that reads out the words is the one that embedded them, and nothing has been added yet.",

  "model.none": "no positions",
  "map.taken": "Taken out, as an experiment: {what}.",
  "ablation.scale": "the scale 1/√d_k",
  "ablation.residual": "residual connections",
  "ablation.causal-mask": "the causal mask",
  "ablation.query-key": "the queries' own projection (they share the keys')",
  "ablation.key-value": "the values' own projection (they share the keys')",
  "ablation.projections": "the projections of queries, keys and values",
  "map.embedding.why.without-positions":
    "Each id picks a row of {D} numbers, times √{D} = {root}. The result is {n} × {D}, and a row is {norm_first} long on average. This model adds no positions.",
  "map.masked.without-causal-mask": "Multi-head attention",
  "map.masked.why.without-causal-mask":
    "{H} heads with Q, K, V of {T} × {K} and scores of {T} × {T}, none of which is masked: in training, this model sees the words that it is to predict. Mean entropy by layer: {entropies} nats.",
  "map.self.why.without-scale":
    "{H} heads, each with Q, K, V of {S} × {K}: scores {S} × {S}, not divided by √{K} = {root_k}. Mean entropy in layers 1 to {layers}: {entropies} nats (uniform: {most}).",
  "map.self.why.without-query-key":
    "{H} heads, each with Q = K and V of {S} × {K}: scores {S} × {S}, the same in both directions, divided by √{K} = {root_k}. Mean entropy in layers 1 to {layers}: {entropies} nats (uniform: {most}).",
  "map.self.why.without-key-value":
    "{H} heads, each with Q and K = V of {S} × {K}: scores {S} × {S}, divided by √{K} = {root_k}. Mean entropy in layers 1 to {layers}: {entropies} nats (uniform: {most}).",
  "map.self.why.without-projections":
    "{H} heads, each with its {K} of every place's {D} numbers as Q, K and V at once: scores {S} × {S}, divided by √{K} = {root_k}. Mean entropy in layers 1 to {layers}: {entropies} nats (uniform: {most}).",
  "map.cross.why.without-projections":
    "Q of {T} × {K} from the decoder, K = V of {S} × {K} from the encoder's output, none of them projected: {H} × {T} × {S} weights. Mean entropy by layer: {entropies} nats (uniform: {most}).",
};
