"""How a model starts. One function, one table."""

import math

from torch import nn

from regard.model.embedding import Embedding, LearnedPositions


def initialise(model: nn.Module) -> None:
    """Gives every parameter its first value, by the kind of module that owns it:

    | parameter                    | value               | why                                                       |
    |------------------------------|---------------------|-----------------------------------------------------------|
    | embeddings, output matrix    | N(0, d_model^-½)    | times √d_model: unit variance in, logits of variance 1 out |
    | learned positions            | N(0, 1/√2)          | as large as sinusoids                                      |
    | weights of linear maps       | N(0, 0.02)          | sub-layers start as small corrections of the residual:     |
    |                              |                     | larger ones make all decoder positions alike               |
    | biases, LayerNorm β          | 0                   |                                                            |
    | LayerNorm γ                  | 1                   |                                                            |
    """
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, nn.LayerNorm):
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
        elif isinstance(owner, nn.Linear):
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02)
        elif isinstance(owner, LearnedPositions):
            nn.init.normal_(parameter, std=math.sqrt(0.5))
        else:
            assert isinstance(owner, Embedding), f"no first value for {name}"
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
