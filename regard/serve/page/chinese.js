export const chinese = {
  run: "模型", views: "视图", light: "浅色", dark: "深色", numbers: "数据 (JSON)", picture: "图片 (SVG)", source: "原文", target: "译文", type: "输入一个句子",
  beam: "束宽", alpha: "α", score: "得分", layer: "第 {n} 层", asking: "正在询问模型……", nothing: "请在上方输入一个句子。",
  "needs-model": "此文件只保存了一个句子的结果；这个问题要问正在运行的模型：请使用 regard serve。", "log-prob.why": "整个译文（包括结束符）的对数概率",
  release: "把选择权还给模型", "held.prefix": "开头固定为", "held.target": "给定译文：", copy: "复制", copied: "已复制", "copy.yourself": "请手动选中并复制",
  "site.encoder": "编码器", "site.decoder": "解码器（带掩码）", "site.cross": "交叉注意力", "stack.encoder": "编码器", "stack.decoder": "解码器",
  "site.encoder.why": "原文上的自注意力：每个位置都可以看到所有位置。", "site.decoder.why": "已有译文上的自注意力：都是三角形，因为谁也不能往后看。", "site.cross.why": "解码器提问，原文回答：每一行是送入解码器的词，它即将说出下一个词。",
  "part.self": "自注意力", "part.cross": "交叉注意力", "part.ffn": "前馈网络",

  "translate.title": "翻译", "translate.lead": "翻译就是根据原文和已经写出的部分，一次又一次地猜下一个词。颜色越蓝，模型越有把握；把指针移到一个词上可看到它关注了什么，点击它可看到还有哪些可能。",
  "translate.hint": "选择另一个词，会保留它之前的内容，并从那里重新解码其余部分。", "translate.others": "“{piece}” 之外的可能", "translate.others.why": "在{before}之后模型认为可能的词；所选的排在第 {rank} 位。", "translate.beginning": "句首", "translate.from-here": "从这里继续",
  "translate.looked": "“{piece}” 关注了什么", "translate.looked.why": "第 {layer} 层的交叉注意力，各头取平均，只看原文的词。", "translate.n-best": "束搜索的最佳结果", "translate.n-best.why": "搜索结束时的全部假设，按得分排列：log P 除以长度惩罚。点击其中一个可以查看其内部。", "translate.curl": "命令行",

  "map.title": "总图", "map.lead": "这是论文 “Attention Is All You Need” 的图 1，按这个模型自己的配置绘制，箭头上是这个句子一路上的张量形状。只有注意力让词与词交换信息；其余部分都逐个位置独立计算。",
  "map.inputs": "原文词元", "map.outputs": "右移的译文", "map.embedding": "词嵌入", "map.positions": "位置编码", "map.self": "多头注意力", "map.masked": "带掩码的多头注意力", "map.cross": "交叉注意力", "map.add": "相加", "map.add-norm": "相加与归一化", "map.norm": "层归一化", "map.ffn": "前馈网络", "map.linear": "线性层", "map.softmax": "Softmax", "map.result": "结果", "map.probabilities": "下一个词的概率", "map.memory": "编码器输出",
  "map.open": "打开 “{view}”", "map.model": "这个模型：{parameters} 个参数，{norm}-norm，{positions} 位置，{activation}。",
  "map.inputs.why": "句子变成 {S} 个编号（包括结束符）：{pieces} … 即 {ids} …", "map.outputs.why": "送入解码器的有 {T} 个词元：开始符和已有的译文；解码器为每一个预测它的下一个。", "map.embedding.why": "每个编号取出一行 {D} 个数，再乘以 √{D} = {root}。结果是 {n} × {D}；加上位置编码后，每行平均长度为 {norm_first}。", "map.positions.why": "对词求和不知道顺序，所以把 {n} × {D} 的波加到词嵌入上：没有它们，打乱的句子就是同一个句子。", "map.positions.learned": "对词求和不知道顺序，所以给每个位置加上一个学到的向量，共 {n} × {D}：没有它们，打乱的句子就是同一个句子。",
  "map.self.why": "{H} 个头，各有 {S} × {K} 的 Q、K、V：得分 {S} × {S}，除以 √{K} = {root_k}。第 1 到 {layers} 层的平均熵：{entropies} nat（完全均匀时为 {most}）。", "map.masked.why": "{H} 个头，Q、K、V 为 {T} × {K}，得分 {T} × {T}，对角线以上的得分在 softmax 之前被去掉。各层平均熵：{entropies} nat。", "map.cross.why": "Q 为 {T} × {K}，来自解码器；K、V 为 {S} × {K}，来自编码器输出，每个句子只投影一次：共 {H} × {T} × {S} 个权重。各层平均熵：{entropies} nat（完全均匀时为 {most}）。",
  "map.add.why": "子层算出的结果加到它的输入上，信息在路上不会丢失。这里一个位置的向量在嵌入之后平均长 {norm_first}，最后一个子层之后长 {norm_last}。", "map.norm.why": "每个位置的 {D} 个数变为均值 0、方差 1，再乘上学到的增益、加上偏置；与其他词、其他句子无关。", "map.ffn.why": "在 {n} 个位置上用同一个小网络：{D} → {F} → {D}。{F} 个单元中大于 0 的比例，逐层为：{active}。", "map.linear.why": "{T} × {D} 乘以 {D} × {V}：{V} 个子词各得一个数；用的就是词嵌入的矩阵，除非模型另有一个。", "map.softmax.why": "{V} 个数变成概率。第一个词 “{first}” 的概率是 {prob}；整个译文的 log P = {log_prob}。", "map.result.why": "",

  "subwords.title": "子词", "subwords.lead": "文本被切成子词：常见的词保持完整，罕见的词由部分拼成，最后还可以用字节拼写，所以没有未知词。字节对编码从字母开始，一次又一次地合并最早学到的一对；这样词表很小，还能找到词的组成部分。",
  "subwords.vocabulary": "这个模型有 {size} 个子词。␣ 表示空格，它属于后面的词；小号数字是编号，即词嵌入矩阵的行。", "subwords.counts": "{words} 个词，{letters} 个字符，{pieces} 个子词", "subwords.merges": "一个词是怎样拼成的", "subwords.merges.why": "每一行是一次合并，蓝色的是新合并的部分。最后不在词表中的部分用字节拼写。", "subwords.imported": "这个模型是导入的，它的子词不是由合并得到的。", "subwords.step": "已做的合并", "subwords.merge": "第 {n} 次合并，共 {all} 次",

  "positions.title": "位置", "positions.lead": "注意力是求和，而求和不知道各项的顺序；所以顺序要写进向量：每两个维度一个波，由快到慢。没有两个位置相同，而且移动 k 个位置在任何地方都是同一个线性映射。",
  "positions.table": "所有的波", "positions.table.why": "从上到下是位置 0 到 {positions} − 1，横向是 {width} 个维度；蓝色为 1，橙色为 −1。", "positions.learned": "这个模型的位置表是学到的：前 {positions} 个位置各有一个向量；蓝色大于 0，橙色小于 0。", "positions.wave": "一对波", "positions.length": "波长 {length} 个位置", "positions.dimension": "第 {n} 维", "positions.dot": "两个位置有多相似", "positions.dot.why": "PE(p)·PE(p+k) 只取决于距离 k，前后对称，并随距离起伏着下降。",
  "positions.switch": "去掉位置", "positions.switch.why": "模型是带着位置编码训练的。关掉它，模型面对的就是一袋没有顺序的词，自己也数不清译文写到了哪里。", "positions.add": "加上位置编码", "positions.with": "有位置", "positions.without": "无位置", "positions.own": "原来译文的 log P = {log}",

  "masks.title": "掩码", "masks.lead": "掩码加在 softmax 之前的得分上，所以不许看的位置权重正好为 0。填充只是为了把一批句子补齐，不该被听到；因果掩码不让一个位置看到它后面的词，因为那正是它要预测的。",
  "masks.padding": "填充掩码", "masks.padding.why": "这个句子与一个比它长 {pads} 的句子放在一批里：蓝色可以关注。", "masks.causal": "因果掩码", "masks.causal.why": "行提问，列回答；位置 t 只看到 t 及以前。", "masks.both": "两者一起", "masks.both.why": "在解码器里，填充位于三角形放行的内容之后。", "masks.may": "“{row}” 可以看 “{column}”", "masks.may-not": "“{row}” 不可以看 “{column}”：权重 0",
  "masks.experiment": "改变结尾，观察开头", "masks.experiment.why": "同样的开头，两种不同的结尾，各算一遍。有因果掩码时，改动之前的预测一位数字都不变；没有它，后面的词就泄漏到前面的预测里。", "masks.other": "另一个结尾", "masks.on": "有因果掩码", "masks.off": "没有", "masks.word": "词", "masks.log": "log P", "masks.change": "变化", "masks.result": "在两者不同之前，最大的变化：有掩码时 {kept}，没有时 {open}。",

  "heads.title": "注意力头", "heads.lead": "一个 softmax 只是一种模式，所以要有多个头，每个头自己判断什么和什么有关：有的看词本身，有的看邻近的词，有的跟着译文看原文。熵 H 小的头只看一处，熵大的头到处都看。",
  "heads.site": "哪一种注意力", "heads.one": "第 {layer} 层，第 {head} 头，熵 {entropy}", "heads.zoom": "注意力权重", "heads.one.title": "{site}，第 {layer} 层，第 {head} 头", "heads.mean.title": "{site}，第 {layer} 层，各头的平均", "heads.max.title": "{site}，第 {layer} 层，各头的最大值", "heads.one.short": "单个头", "heads.mean.short": "平均", "heads.max.short": "最大", "heads.on": "打开这个头", "heads.off": "关掉这个头", "heads.inside": "逐步查看",
  "heads.facts": "平均熵 {entropy} nat，最多可达 {most}；最大的权重是 {top}，从 “{row}” 到 “{column}”。", "heads.tell": "“{row}” 以 {share} 关注 “{column}”", "heads.effect": "少了一个头的模型", "heads.effect.none": "关掉一个头（或双击它），看看译文会变成什么。", "heads.all": "所有的头", "heads.fewer": "关掉之后", "heads.old": "原来译文的 log P", "heads.same": "用词相同", "heads.different": "用词不同", "heads.difference": "变化 {change}", "heads.all-on": "全部打开", "heads.try": "逐个试第 {n} 层的头", "heads.tried": "关掉第 {n} 层的一个头时，译文的 log P 如何变化：",

  "head.title": "单个头", "head.lead": "一个位置用查询提问，每个位置用键回答，得到的是值的加权和，权重取决于查询与键有多吻合。除以 √d_k 使得分的方差保持为 1：更大的得分会把 softmax 推到一个键独占一切的地方，那里没有梯度。",
  "head.layer": "层", "head.head": "头", "head.query": "哪个位置提问？", "head.vectors": "1. 查询与键", "head.vectors.why": "各有 {size} 个数；蓝色大于 0，橙色小于 0。右边是它们的点积。", "head.scale": "2. 缩放", "head.scale.why": "得分除以 √{size} = {root}。移动滑块，看看换成别的数 softmax 会怎样。", "head.usual": "回到 1/√{size}", "head.scores": "得分", "head.masked": "被遮住", "head.softmax": "3. Softmax", "head.saturation": "H = {entropy}，‖∂y/∂x‖ = {slope}", "head.sum": "4. 值的加权和", "head.weight": "权重",
  "head.whole": "整个模型都用这个缩放", "head.whole.none": "移动滑块：模型所有的头都会使用这个缩放，这里显示句子会变成什么。", "head.as-trained": "训练时的缩放", "head.with-scale": "缩放 {scale}",

  "decoding.title": "解码", "decoding.lead": "翻译时，解码器一次说一个词，再把自己的回答送回去，直到它说结束。训练时，无论它会说什么，都给它正确的词：这就是 teacher forcing；在掩码下一次算完，与逐词送入的结果相同。",
  "decoding.walk": "逐词生成", "decoding.step": "第 {n} 步，共 {all} 步", "decoding.back": "上一步", "decoding.on": "下一步", "decoding.facts": "概率 {prob}，排第 {rank}；熵 {entropy} nat，相当于在 {choices} 个词中选择。", "decoding.prefix": "必须这样开头", "decoding.prefix.why": "写下开头，模型必须接着写。", "decoding.prefix.none": "空：由模型开头",
  "decoding.both": "Teacher forcing 与自回归", "decoding.both.why": "上面送入的是给定的译文，下面送入的是模型自己贪心选出的词。两者第一次分开的地方加了框；橙色表示模型本来不会说给定的下一个词。", "decoding.reference": "给定的译文", "decoding.fed": "送入", "decoding.forced": "会说", "decoding.right": "给定的下一个", "decoding.own-fed": "送回自己的", "decoding.free": "说出", "decoding.equal": "两者没有分开：让模型自己说，它说的正是这句。", "decoding.parts": "在第 {n} 个词分开：给定的是 “{given}”，说出的是 “{own}”。",

  "beam.title": "束搜索", "beam.lead": "贪心搜索总取最好的下一个词，从不回头；束搜索同时保留 W 个最好的开头。每个词都有代价，越长的译文概率越小，所以得分要除以长度惩罚。",
  "beam.beam": "束宽 W", "beam.alpha": "惩罚 α", "beam.tree": "搜索过程", "beam.kept": "保留", "beam.finished": "完成", "beam.pruned": "剪掉", "beam.count": "{steps} 步中共 {all} 个候选；数字是到此为止的得分", "beam.tell": "{text}：{fate}，log P = {log}，得分 = {score}", "beam.finished.title": "完成的假设", "beam.penalty": "惩罚",

  "residual.title": "残差流", "residual.lead": "每个子层都往一条从词嵌入流向预测的流里加上一点，所以每一层的状态都可以当作最后一层来读：logit lens。注意力在位置之间搬运信息之后，前馈网络再逐个位置独立计算。",
  "residual.embedding": "词嵌入", "residual.norms": "向量有多长", "residual.norms.post": "每个子层之后的 ‖x‖。这个模型在每次相加之后归一化，所以长度由学到的增益决定。", "residual.norms.pre": "每个子层之后的 ‖x‖。这个模型在每个子层之前归一化，所以残差流本身可以增长。", "residual.mean": "平均", "residual.largest": "最大", "residual.sublayer": "子层",
  "residual.lens": "每一层会说什么", "residual.lens.why": "如果解码器到此为止，最可能的下一个词；与最后所选相同的加了框。", "residual.own": "“{piece}” 会有 {share}", "residual.taken": "所选", "residual.ffn": "前馈网络", "residual.ffn.relu": "FFN(x) = max(0, x W₁ + b₁) W₂ + b₂", "residual.ffn.gelu": "FFN(x) = GELU(x W₁ + b₁) W₂ + b₂", "residual.ffn.silu": "FFN(x) = SiLU(x W₁ + b₁) W₂ + b₂", "residual.ffn.why": "每层 {size} 个单元中有多少大于 0；以及在每个位置上最强的单元。", "residual.share": "大于 0 的单元比例", "residual.share.tell": "{layer}，“{name}”：{share}，{count} 个单元", "residual.units": "第 {n} 层最强的单元",

  "training.title": "训练", "training.lead": "模型学习的方式是让正确的下一个词更可能：损失是它的 −log P，对词取平均。学习率先直线上升，因为 Adam 的平均值起初一无所知，然后下降。",
  "training.loss": "损失", "training.loss.why": "每个词元的平均 −log P，单位 nat；训练时有 dropout，验证时没有。", "training.bleu": "BLEU", "training.bleu.why": "验证文本，贪心翻译。", "training.rate": "学习率", "training.rate.why": "预热时上升，之后下降。", "training.gradient": "梯度范数", "training.gradient.why": "裁剪之前，两行记录之间的平均。", "training.training": "训练", "training.validation": "验证", "training.step": "步", "training.at": "第 {step} 步，共 {steps} 步", "training.none": "还没有写出任何一步", "training.speed": "{speed} 词元/秒", "training.finished": "已完成", "training.live": "正在训练，实时更新", "training.compare": "另一个模型，同一个句子", "training.compare.why": "它的曲线也画在上面。", "training.alone": "同时提供多个模型（regard serve A B），就可以在这里比较。",
};
