"""What the model sees at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class Batch:
    """Sources, and targets twice: as the decoder is fed them, shifted right behind BOS, and as it should predict them."""

    src: Int[Tensor, "B S"]
    tgt_in: Int[Tensor, "B T"]
    tgt_out: Int[Tensor, "B T"]

    @property
    def num_tokens(self) -> int:
        """Target tokens to predict; padding is none."""
        return int((self.tgt_out != PAD_ID).sum())


def collate(src: Sequence[npt.ArrayLike], tgt: Sequence[npt.ArrayLike]) -> Batch:
    """Rows of ids, padded at the end to the longest of their side. A source ends with EOS, so that none is empty."""
    targets = [np.asarray(row, dtype=np.int64) for row in tgt]
    return Batch(
        src=_padded([np.append(np.asarray(row, dtype=np.int64), EOS_ID) for row in src]),
        tgt_in=_padded([np.insert(row, 0, BOS_ID) for row in targets]),
        tgt_out=_padded([np.append(row, EOS_ID) for row in targets]),
    )


def _padded(rows: list[npt.NDArray[np.int64]]) -> Int[Tensor, "B T"]:
    table = np.full((len(rows), max(map(len, rows))), PAD_ID, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)
