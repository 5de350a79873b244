// Texts in Chinese on models that differ from the paper's: RNNs, and Transformers without one of their parts.

export const chineseOthers = {
  "translate.lead.rnn":
    "翻译就是根据代表原文的一个向量和已经生成的部分，反复预测下一个词。橙色越深，模型越没有把握；点击一个词，可以看到其他候选词。",
  "translate.looked.why.rnn":
    "这个 RNN 没有注意力。解码器对原文的全部了解是一个 {size} 维的向量，预测每个词时用的都是它。",
  "translate.looked.why.rnn-attention": "预测这个词的那一步的注意力权重，只显示原文的词。",

  "map.lead.rnn":
    "这是 Cho 等人和 Sutskever 等人（2014）的 RNN 编码器–解码器，按当前模型的配置绘制，箭头旁标出了这个句子对应的张量形状。它逐词阅读；读完最后一个词时，它知道的一切都必须装进一个向量 C，句子再长，C 也不会变大。",
  "map.lead.rnn-attention":
    "这是 Bahdanau 等人（2015）的带注意力的 RNN 编码器–解码器，按当前模型的配置绘制，箭头旁标出了这个句子对应的张量形状。每一步之前，解码器的状态与原文的每个位置比较，这一步看到的是它们的加权和：每一步都不同，而没有注意力的 RNN 每一步都只有同一个向量。",
  "map.forwards": "{cell}（正向）",
  "map.backwards": "{cell}（反向）",
  "map.fixed": "向量 C",
  "map.bridge": "初始状态",
  "map.cross.rnn-attention": "注意力",
  "map.cell": "{cell}",
  "map.readout": "读出层",
  "map.only-last": "只有最后一个状态传下去",
  "map.model.rnn": "当前模型：{parameters} 个参数，{cell}，状态为 {Q} 维，没有注意力。",
  "map.model.rnn-attention": "当前模型：{parameters} 个参数，{cell}，状态为 {Q} 维，{score}。",
  "score.additive": "加性得分",
  "score.dot": "点积得分",
  "score.scaled": "缩放点积得分",
  "map.embedding.why.recurrent":
    "每个编号对应一行 {D} 个数，再乘以 √{D} = {root}。结果是 {n} × {D}，行向量的平均长度为 {norm_first}。不加位置编码：RNN 本来就按顺序阅读。",
  "map.forwards.why":
    "{layers} 层 {cell}，从第一个词读到最后一个词：每个 {Q} 维的状态由当前的词和前一个状态得到。各层状态的平均长度依次为 {norms}。",
  "map.forwards.why.rnn-attention":
    "{layers} 层 {cell}，从第一个词读到最后一个词：每个 {Q} 维的状态由当前的词和前一个状态得到。与反向的状态拼接之后，各层的平均长度依次为 {norms}。",
  "map.backwards.why":
    "同样的结构，从最后一个词读到第一个词，权重另外学习；这样每个位置既知道前面的词，也知道后面的词。两者拼接为 {S} × {M}，各层的平均长度依次为 {norms}。",
  "map.fixed.why":
    "解码器能看到的原文，全部就是编码器的最后一个状态：{S} 个词元只有 {M} 个数，向量长度为 {length}。句子再长也不会有更多空间；注意力消除的正是这个瓶颈。",
  "map.bridge.why.rnn": "解码器的起点：对 C 做仿射变换再取 tanh，{M} → {layers} × {Q} 个数。此后每一步还会再看到 C。",
  "map.bridge.why.rnn-attention":
    "解码器的起点：对两个方向各自读完时的状态做仿射变换再取 tanh，{M} → {layers} × {Q} 个数。",
  "map.cross.why.rnn-attention":
    "共 {T} 步，每一步之前，{Q} 维的状态与 {S} 个位置逐一比较。softmax 把得分变成权重，共 {T} × {S} 个；再按权重对编码器的状态求和，得到 {T} 个 {M} 维的上下文向量。平均熵：{entropies} nat（均匀分布时为 {most}）。",
  "map.cell.why.rnn":
    "共 {T} 步，每一步都要等前一步：{layers} 层 {cell} 由前一个状态、输入的词和始终不变的 C 得到下一个 {Q} 维的状态。状态的平均长度为 {norms}。",
  "map.cell.why.rnn-attention":
    "共 {T} 步，每一步都要等前一步：{layers} 层 {cell} 由前一个状态、输入的词和这一步的上下文向量得到下一个 {Q} 维的状态。状态的平均长度为 {norms}。",
  "map.readout.why":
    "状态、输入的词和看到的原文，共 {Q} + {D} + {M} 个数，变成输出矩阵所需的 {D} 个数，平均长度为 {norms}。",

  "positions.lead.recurrent":
    "注意力是加权求和，而求和与各项的顺序无关，所以要另外告诉 Transformer 顺序。RNN 逐词阅读，每个状态都由前一个状态得到：顺序本来就在其中。",
  "positions.none.title": "没有位置编码",
  "positions.none.recurrent":
    "词嵌入上不加任何东西，也没有可以关闭的开关。代价是：第一个词的信息要经过中间所有的状态，才能到达这 {n} 个状态中的最后一个；而且每一步都要等前一步完成才能开始。",
  "positions.none.without-positions":
    "这个模型是不带位置编码训练的：对编码器来说，这个句子只是一袋 {n} 个词元，换一个顺序，每个词元得到的向量也不变。仅有的顺序信息来自解码器的因果掩码。",

  "masks.lead.recurrent":
    "掩码遮蔽的是本来能看到、却不该看到的内容。RNN 的解码器没有什么需要遮蔽：每一步只由前一个状态和输入的词得到，还没有读到的词，它本来就看不到。",
  "masks.padding.why.rnn-attention":
    "注意力能同时看到整个原文，所以那里有需要遮蔽的内容：这个句子与一个比它长 {pads} 个词元的句子在同一批中。蓝色表示可以关注。",
  "masks.experiment.why.recurrent":
    "开头相同、结尾不同的两个译文，各计算一遍。改动之前的预测完全不变，显示的每一位数字都相同，而这并不需要掩码。",
  "masks.on.recurrent": "原模型",
  "masks.result.recurrent": "在两者出现差异之前，最大的变化：{kept}。",
  "masks.causal.why.without-causal-mask": "这个模型去掉了因果掩码：每个位置都能看到所有位置，包括它后面的。",
  "masks.both.why.without-causal-mask": "没有因果掩码时，解码器中的填充也要遮蔽。",
  "masks.experiment.why.without-causal-mask":
    "开头相同、结尾不同的两个译文，各计算一遍。这个模型是不带因果掩码训练的：后面的词会泄漏到前面的预测中，而模型学会了依赖它们。",
  "masks.on.without-causal-mask": "无因果掩码",
  "masks.result.without-causal-mask": "在两者出现差异之前，最大的变化：{kept}。",
  "site.decoder.without-causal-mask": "解码器",
  "site.decoder.why.without-causal-mask": "译文上的自注意力，包括后面的词：这个模型没有因果掩码。",

  "heads.lead.rnn": "这个模型没有注意力，也就没有注意力头。无论要预测哪个词，解码器对原文的全部了解都是同一个向量。",
  "heads.lead.rnn-attention":
    "这里只有一处注意力，而且只有一个头：每一步之前，解码器的状态与原文的每个位置比较。熵 H 小的一行只关注一处，熵大的一行关注各处。",
  "heads.fixed": "{size} 个数，蓝色大于 0，橙色小于 0：{n} 个词元留下的只有这些。对长句子来说这太少了，于是有了注意力。",
  "site.cross.rnn-attention": "注意力",
  "site.cross.why.rnn-attention":
    "每一行是一步，以输入的词命名：这一步之前的状态提供查询，原文提供键，然后这一步预测下一个词。",
  "heads.one.title.rnn-attention": "每一步关注什么",
  "heads.entropy.title.rnn-attention": "每一步注意力的熵",
  "heads.all.rnn-attention": "有注意力",
  "heads.effect.rnn-attention": "没有注意力的模型",
  "heads.effect.how.rnn-attention": "关闭它，解码器对原文的了解就只剩初始状态：看看译文会变成什么。",

  "head.lead.rnn":
    "这个模型没有注意力：没有查询，没有键，也没有加权。无论要预测哪个词，解码器对原文的全部了解都是同一个向量。",
  "head.lead.rnn-attention":
    "解码器的状态发出查询，与原文每个位置的键比较，这一步得到的是编码器状态的加权和，权重取决于查询与键的匹配程度。匹配程度用得分衡量：Bahdanau 等人的加性得分、点积，或者除以 √d_k 的点积，最后一种就是 Transformer 的做法。",
  "head.vectors.additive":
    "各有 {size} 个数；蓝色大于 0，橙色小于 0。右边是得分 e = vᵀ tanh(q + k)，其中 v 是学到的向量。",
  "head.unscaled": "2. 没有缩放",
  "head.scale.additive": "tanh 的值不会超出 ±1，所以无论维数多大，这个模型的得分都不会超出 ±Σ|v| = ±{most}：不需要 √d_k。",
  "head.scale.dot": "这个模型的得分不除以 √{size} = {root}。移动滑块，看看换成别的缩放系数时 softmax 会怎样。",
  "head.usual.dot": "恢复为 1",

  "decoding.lead.recurrent":
    "翻译时，解码器每次预测一个词，再把自身输出作为下一步的输入，直到预测出结束符：这就是自回归（autoregression）。训练时，无论它会预测什么，输入的都是正确的词：这就是教师强制（teacher forcing）。两种情况下，RNN 都是逐词计算的。",
  "decoding.lead.without-causal-mask":
    "翻译时，解码器每次预测一个词，再把自身输出作为下一步的输入，直到预测出结束符：这就是自回归（autoregression）。训练时输入的都是正确的词：这就是教师强制（teacher forcing）。没有因果掩码时，一次前向计算会看到要预测的词，所以这里的结果与逐词输入不同。",

  "residual.lead.recurrent":
    "RNN 没有残差流，也没有前馈网络：在词与词之间传递的是它的状态。状态的宽度与输出矩阵不同，中途不能当作词来解读，所以没有 logit lens。",
  "residual.norms.recurrent":
    "词嵌入之后和每一层之后的 ‖x‖。状态是 {size} 个 −1 与 1 之间的数，所以长度不会超过 √{size} = {root}。",
  "residual.state": "状态",
  "residual.readout": "读出层",
  "residual.sublayer.recurrent": "位置",
  "residual.lead.without-residual":
    "这个模型没有残差流：它去掉了残差连接，子层的输出直接取代输入。每一层的状态仍然可以当作最后一层来解读，这就是 logit lens。",
  "residual.norms.post.without-residual":
    "每个子层之后的 ‖x‖。这个模型不相加，直接对子层的输出做归一化，所以长度由学到的增益决定。",
  "residual.norms.pre.without-residual": "每个子层之后的 ‖x‖。这个模型不相加：长度就是该子层输出的长度。",
  "residual.lens.shared.without-positions":
    "最下面一行几乎总是输入的词本身，概率接近 100\u00a0%：输出所用的矩阵就是词嵌入矩阵，而此时还没有加入任何内容。",

  "model.none": "没有位置编码",
  "map.taken": "作为实验去掉的部分：{what}。",
  "ablation.scale": "缩放系数 1/√d_k",
  "ablation.residual": "残差连接",
  "ablation.causal-mask": "因果掩码",
  "ablation.query-key": "查询的单独投影（与键共用）",
  "ablation.key-value": "值的单独投影（与键共用）",
  "ablation.projections": "查询、键和值的投影",
  "map.embedding.why.without-positions":
    "每个编号对应一行 {D} 个数，再乘以 √{D} = {root}。结果是 {n} × {D}，行向量的平均长度为 {norm_first}。这个模型不加位置编码。",
  "map.masked.without-causal-mask": "多头注意力",
  "map.masked.why.without-causal-mask":
    "{H} 个头，Q、K、V 为 {T} × {K}，得分为 {T} × {T}，没有任何得分被遮蔽：训练时，这个模型能看到要预测的词。各层的平均熵：{entropies} nat。",
  "map.self.why.without-scale":
    "{H} 个头，各有 {S} × {K} 的 Q、K、V：得分为 {S} × {S}，不除以 √{K} = {root_k}。第 1 到 {layers} 层的平均熵：{entropies} nat（均匀分布时为 {most}）。",
  "map.self.why.without-query-key":
    "{H} 个头，各有 {S} × {K} 的 Q = K 和 V：得分为 {S} × {S}，两个方向相同，除以 √{K} = {root_k}。第 1 到 {layers} 层的平均熵：{entropies} nat（均匀分布时为 {most}）。",
  "map.self.why.without-key-value":
    "{H} 个头，各有 {S} × {K} 的 Q 和 K = V：得分为 {S} × {S}，除以 √{K} = {root_k}。第 1 到 {layers} 层的平均熵：{entropies} nat（均匀分布时为 {most}）。",
  "map.self.why.without-projections":
    "{H} 个头，每个头取每个位置 {D} 个数中的 {K} 个，同时作为 Q、K、V：得分为 {S} × {S}，除以 √{K} = {root_k}。第 1 到 {layers} 层的平均熵：{entropies} nat（均匀分布时为 {most}）。",
  "map.cross.why.without-projections":
    "Q 为 {T} × {K}，来自解码器；K = V 为 {S} × {K}，来自编码器输出，都不做投影：共 {H} × {T} × {S} 个权重。各层的平均熵：{entropies} nat（均匀分布时为 {most}）。",
};
