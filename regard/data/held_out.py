"""Pairs or texts kept apart to validate on, if no validation text was given.

The choice is a pure function of the seed and of the corpus: those whose hashed content comes first. The training text is
never held: its keys (64-bit hashes of content) are on the disk, and are read in blocks.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.errors import UserError

Keys = npt.NDArray[np.uint64]  # a row for each pair or text: of all of it, then of each side apart from case and punctuation
Mask = npt.NDArray[np.bool_]

MOST = 1000
SHARE = 20  # keep one row in so many apart
LEAST = 5
CANDIDATES = 4000  # the rows that are chosen from
MOST_LOST = 10  # take at most one row in so many from the training text
BLOCK = 2**20  # rows


def read_keys(path: Path, columns: int) -> Keys:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros((0, columns), dtype=np.uint64)
    return np.memmap(path, dtype=np.uint64, mode="r").reshape(-1, columns)


def keep_apart(keys: Keys, seed: int, what: str, flags: str) -> tuple[Mask, Mask]:
    """Return masks of the rows to validate on and to learn from: one row in 20, at most 1,000, and all others that share no
    side with one of these. Of 4,000 candidates, those that share their sides with the fewest others are chosen, so that
    little is lost. `what` the rows are and the `flags` that give validation text are for errors."""
    count = min(MOST, len(keys) // SHARE)
    if count < LEAST:
        raise UserError(
            f"{len(keys):,} {what} are too few to keep some apart to validate on, which takes {SHARE * LEAST}; give {flags}"
        )
    candidates = _first_by_hash(keys, seed)
    costs = _others_like(keys, candidates)
    cheapest = candidates[np.argsort(costs, kind="stable")]
    lost = np.cumsum(np.sort(costs) + 1)
    chosen = cheapest[:count][lost[:count] <= len(keys) // MOST_LOST]
    if len(chosen) < LEAST:
        raise UserError(f"too many of the {len(keys):,} {what} share a text to keep some apart to validate on; give {flags}")
    valid = np.zeros(len(keys), dtype=np.bool_)
    valid[chosen] = True
    wanted = np.unique(keys[chosen, 1:])
    train = np.concatenate([~np.isin(block[:, 1:], wanted).any(axis=1) for block in _blocks(keys)])
    return valid, train


def description(valid: Mask, train: Mask, seed: int, what: str, flags: str) -> str:
    """Say in a sentence what was kept apart."""
    num_valid, num_like = int(valid.sum()), int((~valid & ~train).sum())
    return (
        f"no validation text was given: {num_valid:,} of {len(valid):,} {what} are kept apart to validate on (seed {seed}), "
        f"and {num_like:,} that share a text with one of them are not learnt from; {flags} would take their place"
    )


def stands_in(wanted: Keys, keys: Keys, column: int, rows: Mask) -> Mask:
    """Return a mask of the `wanted` keys that stand in a column of these rows."""
    found = np.zeros(len(wanted), dtype=np.bool_)
    for start, block in zip(range(0, len(keys), BLOCK), _blocks(keys), strict=True):
        found |= np.isin(wanted, block[rows[start : start + BLOCK], column])
    return found


def _blocks(keys: Keys) -> list[Keys]:
    return [keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK)]


def _first_by_hash(keys: Keys, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows whose hash of seed and content comes first, one of each content, in the order of their hashes."""
    rows = np.zeros(0, dtype=np.int64)
    hashes = np.zeros(0, dtype=np.uint64)
    for start, block in zip(range(0, len(keys), BLOCK), _blocks(keys), strict=True):
        hashes = np.concatenate([hashes, _mixed(block[:, 0], seed)])
        rows = np.concatenate([rows, start + np.arange(len(block))])
        hashes, first = np.unique(hashes, return_index=True)  # sorted, and of equal ones the first row
        hashes, rows = hashes[:CANDIDATES], rows[first][:CANDIDATES]
    return rows


def _mixed(keys: Keys, seed: int) -> Keys:
    """Mix each key with the seed by SplitMix64, whose arithmetic is modulo 2^64."""
    state = keys + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    mixed: Keys = state ^ (state >> np.uint64(31))
    return mixed


def _others_like(keys: Keys, candidates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count the other rows that share a side with each candidate. A row that shares two counts twice."""
    sides = keys[candidates, 1:]
    known, places = np.unique(sides, return_inverse=True)
    times = np.zeros(len(known), dtype=np.int64)
    for block in _blocks(keys):
        found = block[:, 1:].ravel()
        at = np.minimum(np.searchsorted(known, found), len(known) - 1)
        times += np.bincount(at[known[at] == found], minlength=len(known))
    counts: npt.NDArray[np.int64] = (times - 1)[places.reshape(sides.shape)].sum(axis=1)
    return counts
