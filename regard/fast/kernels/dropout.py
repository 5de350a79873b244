"""Dropout masks, computed from a seed, the place in the model and the element's number.

No mask is stored between forward and backward pass; each of them computes it. The random bits are an integer hash of a
counter (with the multipliers of Chris Wellons' lowbias32), which costs a tenth of Philox and is as good for the purpose.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor


class HashDropout(NamedTuple):
    """Dropout at one place in the model. The seed is a tensor, so that a captured pass can be replayed with another."""

    seed: Int[Tensor, " 1"]
    site: int
    p: float

    @property
    def key(self) -> int:
        """The site's number, spread over 32 bits, as the signed integer that a kernel takes."""
        spread = self.site * 0x9E3779B9 % 2**32
        return spread - 2**32 * (spread >= 2**31)

    @property
    def threshold(self) -> int:
        """The 32-bit number below which random bits drop an element."""
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
    """Return True with probability 1 - threshold / 2³². A key enters before the mixing and another within it; with the first
    alone, the masks of two sites would be permutations of each other."""
    seed = tl.load(seed_ptr).to(tl.uint32)
    key = mix(seed ^ site_key.to(tl.uint32))
    x = numbers.to(tl.uint32) ^ key
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D).to(tl.uint32) + mix(key)
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B).to(tl.uint32)
    x = x ^ (x >> 16)
    return x >= threshold.to(tl.uint32)
