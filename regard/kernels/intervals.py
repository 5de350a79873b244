"""Who may attend to whom among packed tokens."""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor


class Intervals(NamedTuple):
    """Which keys each query may attend to, first and one behind the last, and which queries attend to each key."""

    key_first: Int[Tensor, " Q"]
    key_end: Int[Tensor, " Q"]
    query_first: Int[Tensor, " N"]
    query_end: Int[Tensor, " N"]
