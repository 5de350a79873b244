"""Intervals of packed tokens that may attend to each other."""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor


class Intervals(NamedTuple):
    """The interval of keys that each query may attend to, and of queries that attend to each key. Ends are exclusive."""

    key_first: Int[Tensor, " Q"]
    key_end: Int[Tensor, " Q"]
    query_first: Int[Tensor, " N"]
    query_end: Int[Tensor, " N"]
