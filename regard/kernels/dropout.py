"""Which elements dropout keeps: a pure function of a seed, the place in the model and the element's number.

Nothing is stored between forward and backward pass: both ask again. The bits come from a counter through an integer hash
(the multipliers are Chris Wellons' lowbias32), which costs a tenth of Philox and is as good for the purpose.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor


class Dropout(NamedTuple):
    """One place in the model. The seed is a tensor, so that a recorded pass can be repeated with another."""

    seed: Int[Tensor, " 1"]
    site: int
    p: float

    @property
    def key(self) -> int:
        """The site's, spread over 32 bits, as the signed number that a kernel is given."""
        spread = self.site * 0x9E3779B9 % 2**32
        return spread - 2**32 * (spread >= 2**31)

    @property
    def threshold(self) -> int:
        """Of 32 random bits; what is not below it is kept."""
        return min(round(self.p * 2**32), 2**32 - 1)

    @property
    def scale(self) -> float:
        return 1.0 / (1.0 - self.p)


@triton.jit
def mix(x):
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D).to(tl.uint32)
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B).to(tl.uint32)
    return x ^ (x >> 16)


@triton.jit
def kept(seed_ptr, site_key, numbers, threshold):
    """True with probability 1 - threshold / 2³². Two keys, one before and one amid the mixing: with one alone, two sites'
    masks would be each other's in another order."""
    seed = tl.load(seed_ptr).to(tl.uint32)
    key = mix(seed ^ site_key.to(tl.uint32))
    x = numbers.to(tl.uint32) ^ key
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D).to(tl.uint32) + mix(key)
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B).to(tl.uint32)
    x = x ^ (x >> 16)
    return x >= threshold.to(tl.uint32)
