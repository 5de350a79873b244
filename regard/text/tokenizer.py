"""Subwords: SentencePiece BPE with byte fallback, one model for both languages or one for each.

Text is encoded and decoded unchanged, but for spaces: they are folded, and U+2581 is one to SentencePiece. Special tokens
are ids and never text: a literal `</s>` in a sentence is ordinary text. Unknown characters are spelled in bytes.

Imported models (`regard import`) have Marian's subwords, which differ in three ways: unknown characters are UNK, a sentence
may begin with a language code, and pieces without a row in the model are UNK. They contain the piece `MARIAN`.
"""

import io
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import sentencepiece

from regard.errors import UserError

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
NEVER_OUTPUT = (PAD_ID, BOS_ID)  # no search may choose these
NUM_RESERVED = 4 + 256  # the special tokens, and every byte
MANY = 64  # texts that are worth several threads
LOTS = 256  # ways to draw the merges of a word that BPE-dropout leaves out
LONGEST_KEPT, MOST_KEPT = 24, 100_000  # the longest word whose cuts are remembered, and how many such words
SPACE = "▁"  # as SentencePiece writes it, before every word
MARIAN = "<marian>"  # a control piece of imported models; pieces behind it are found in text, and are UNK to the model
LANGUAGE_CODE = re.compile(r">>.*?<<", re.DOTALL)  # the target language of an imported multilingual model


def learn_subwords(sentences: Iterable[str], vocab_size: int) -> bytes:
    """Learn a SentencePiece model of `vocab_size` pieces, or of as many as the text supports. The rarest characters, one in
    two thousand, get no piece of their own."""
    if vocab_size <= NUM_RESERVED:
        raise UserError(f"a vocabulary of {vocab_size} is too small: {NUM_RESERVED} entries are special tokens and bytes")
    model = io.BytesIO()
    failures: list[Exception] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_remembering(sentences, failures),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=True,
            character_coverage=0.9995,
            normalization_rule_name="identity",  # the text is NFC already
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            max_sentence_length=2**20,
            num_threads=8,  # stored in the model, so the same on all machines
            minloglevel=2,
        )
    except RuntimeError as error:
        if failures:  # raised by the iterator, and hidden by SentencePiece
            raise failures[0] from None
        if needed := re.search(r"required_chars.*?(\d+) vs (\d+)", str(error)):
            raise UserError(
                f"a vocabulary of {vocab_size} cannot hold the characters of this text; give at least {needed[2]}"
            ) from error
        raise UserError(f"no vocabulary of {vocab_size} could be learnt from this text: {error}") from error
    return model.getvalue()


def _remembering(sentences: Iterable[str], failures: list[Exception]) -> Iterator[str]:
    try:
        yield from sentences
    except Exception as error:
        failures.append(error)
        raise


class Cuts:
    """The segmentations of a word for the lots drawn so far. A lot is a random byte that decides which merges BPE-dropout
    leaves out. Most lots give one of few segmentations (`ways`), which saves memory."""

    __slots__ = ("ways", "ways_of_lots")

    def __init__(self) -> None:
        self.ways: list[tuple[int, ...]] = [()]
        self.ways_of_lots = bytearray(LOTS)  # indices; 0: not drawn yet

    def remember(self, lot: int, way: tuple[int, ...]) -> None:
        """Remember the segmentation of a lot. Threads may interleave."""
        if way not in self.ways:
            self.ways.append(way)
        if (index := self.ways.index(way)) < 256:
            self.ways_of_lots[lot] = index


class Subwords:
    """A SentencePiece model: text to ids and back."""

    def __init__(self, model: bytes) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise UserError("this is not a SentencePiece model") from error
        self.model = model
        self._cuts: dict[tuple[float, str], Cuts] = {}  # by dropout and word
        end = int(self._processor.piece_to_id(MARIAN))
        self.is_marian = bool(self._processor.is_control(end))
        self._num_ids = end if self.is_marian else int(self._processor.get_piece_size())

    def __len__(self) -> int:
        return self._num_ids

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without BOS or EOS."""
        if self.is_marian:
            return [self._encode_as_marian(text) for text in texts]
        num_threads = 1 if len(texts) < MANY else -1  # -1: all, which take longer to start than a few texts take
        ids: list[list[int]] = self._processor.encode(list(texts), num_threads=num_threads)
        return ids

    def _encode_as_marian(self, text: str) -> list[int]:
        """Encode as Marian does: a language code is cut off first, and pieces are looked up by their text, so that a piece
        of the other side's model is found, too."""
        code = LANGUAGE_CODE.match(text)
        pieces: list[str] = self._processor.encode(text[code.end() :] if code else text, out_type=str)
        ids = [int(self._processor.piece_to_id(piece)) for piece in ([code[0], *pieces] if code else pieces)]
        return [n if UNK_ID < n < len(self) else UNK_ID for n in ids]

    def encode_with_dropout(self, texts: Sequence[str], *, dropout: float, seed: int) -> list[list[int]]:
        """Encode normalised text with BPE-dropout (Provilkov et al. 2020): each merge is left out with this probability. The
        seed decides the result, unlike in SentencePiece, which adds a random number of the process."""
        if self.is_marian:
            raise UserError("BPE-dropout needs subwords that regard learnt, and these are imported; set train.bpe_dropout=0")
        chance = random.Random(seed)
        if len(self._cuts) > MOST_KEPT:
            self._cuts.clear()
        encoded = []
        for text in texts:
            words = [word for word in text.split(" ") if word]
            ids: list[int] = []
            for word, lot in zip(words, chance.randbytes(len(words)), strict=True):
                cuts = self._cuts.get((dropout, word))
                ids += (cuts and cuts.ways[cuts.ways_of_lots[lot]]) or self._cut(word, dropout, lot)
            encoded.append(ids)
        return encoded

    def _cut(self, word: str, dropout: float, lot: int) -> tuple[int, ...]:
        """Return the ids of a word by the merges that this lot keeps, and remember those of a short word: words repeat, and
        merging them anew would be many times slower. A word therefore has at most as many segmentations as there are lots,
        the same in every run; their probabilities are right over all words, and nearly right for each word."""
        way = tuple(self._merged(SPACE + word, dropout, random.Random(f"{word} {lot}").random))
        if len(word) <= LONGEST_KEPT:
            self._cuts.setdefault((dropout, word), Cuts()).remember(lot, way)
        return way

    def _merged(self, word: str, dropout: float, draw: Callable[[], float]) -> list[int]:
        *_, symbols = self._merging(word, dropout, draw)
        return [token for symbol in symbols for token in self._ids_of(symbol)]

    def merges(self, word: str) -> list[list[str]]:
        """Return the symbols of a word at first, which are its letters, and after each merge."""
        return [list(symbols) for symbols in self._merging(SPACE + word, 0.0, lambda: 1.0)]

    def _merging(self, word: str, dropout: float, draw: Callable[[], float]) -> Iterator[list[str]]:
        """Yield the symbols of a word, always the same list, before each merge and after the last. Of the best merges that
        dropout keeps, the first is done."""
        symbols = list(word)
        while True:
            yield symbols
            best, best_score = -1, -math.inf
            for place in range(len(symbols) - 1):
                score = self._scores.get(symbols[place] + symbols[place + 1], -math.inf)
                if score > best_score and draw() >= dropout:  # other merges need no lot
                    best, best_score = place, score
            if best < 0:
                return
            symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]

    def _ids_of(self, symbol: str) -> list[int]:
        """Return the id of a piece; other symbols are spelled in bytes."""
        pieces = [symbol] if symbol in self._scores else [f"<0x{byte:02X}>" for byte in symbol.encode("utf-8")]
        return [int(self._processor.piece_to_id(piece)) for piece in pieces]

    @cached_property
    def _scores(self) -> dict[str, float]:
        """The scores of all pieces of text; the piece that was learnt first has the highest."""
        return {self._processor.id_to_piece(n): self._processor.get_score(n) for n in range(NUM_RESERVED, len(self))}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens."""
        text: str = self._processor.decode([token for token in ids if token > UNK_ID])
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        pieces: list[str] = self._processor.id_to_piece(list(ids))
        return pieces

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """Return the ids of pieces, UNK for a text that is no piece."""
        ids: list[int] = self._processor.piece_to_id(list(pieces))
        return [n if n < len(self) else UNK_ID for n in ids]

    def knows(self, character: str) -> bool:
        """Return whether a character is a piece; others are spelled in bytes."""
        return not self._processor.is_unknown(self._processor.piece_to_id(character))


@dataclass(frozen=True)
class Tokenizer:
    """The subwords of both sides, shared or separate."""

    src: Subwords
    tgt: Subwords

    @property
    def is_shared(self) -> bool:
        return self.src.model == self.tgt.model

    def save(self, folder: Path) -> None:
        """Write `tokenizer.model`, or `tokenizer.src.model` and `tokenizer.tgt.model`."""
        for name, model in self.files().items():
            (folder / name).write_bytes(model)

    def is_in(self, folder: Path) -> bool:
        """Return whether the tokenizer of a folder is this one."""
        files = self.files()
        return all((folder / name).exists() and (folder / name).read_bytes() == model for name, model in files.items())

    def files(self) -> dict[str, bytes]:
        if self.is_shared:
            return {"tokenizer.model": self.src.model}
        return {"tokenizer.src.model": self.src.model, "tokenizer.tgt.model": self.tgt.model}

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        if (folder / "tokenizer.model").exists():
            shared = Subwords((folder / "tokenizer.model").read_bytes())
            return cls(shared, shared)
        if not (folder / "tokenizer.src.model").exists():
            raise UserError(f"there is no tokenizer in {folder}")
        return cls(*(Subwords((folder / f"tokenizer.{side}.model").read_bytes()) for side in ("src", "tgt")))
