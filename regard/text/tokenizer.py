"""Subwords: SentencePiece BPE with byte fallback, one model for both languages or one for each.

Text goes in raw and comes out raw, but for spaces: they are folded, and U+2581 is one to SentencePiece. Special tokens are
ids and never text: a literal `</s>` in a sentence stays what it is. What the vocabulary has never seen is spelled in bytes.

Imported models (`regard import`) bring Marian's subwords, which differ in three ways: what is unknown is UNK, a sentence may
begin with a language code, and pieces that the model has no row for are UNK as well. `MARIAN` tells them apart.
"""

import io
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import sentencepiece

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
NUM_RESERVED = 4 + 256  # the special tokens, and every byte
MANY = 64
LOTS = 256  # that BPE-dropout draws for a word; a sentence has as many to the power of its words
LONGEST_KEPT, MOST_KEPT = 24, 100_000  # letters of a word whose cuts are remembered, and the number of such words
SPACE = "▁"  # as SentencePiece writes it, before every word
MARIAN = "<marian>"  # a control piece of imported models; those behind it are found in text, and are UNK to the model
LANGUAGE_CODE = re.compile(r">>.*?<<", re.DOTALL)  # which imported models of many languages are told theirs by


def learn_subwords(sentences: Iterable[str], vocab_size: int) -> bytes:
    """A SentencePiece model of `vocab_size` pieces, or of as many as the text supports. The rarest characters, one in two
    thousand, get no piece of their own."""
    if vocab_size <= NUM_RESERVED:
        raise ValueError(f"a vocabulary of {vocab_size} is too small: {NUM_RESERVED} entries are special tokens and bytes")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=True,
            character_coverage=0.9995,
            normalization_rule_name="identity",  # the text is NFC already, and must come back as it was
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            max_sentence_length=2**20,
            num_threads=8,  # stored in the model: a number of its own for each machine would give models of other bytes
            minloglevel=2,
        )
    except RuntimeError as error:
        if needed := re.search(r"required_chars.*?(\d+) vs (\d+)", str(error)):
            raise ValueError(
                f"a vocabulary of {vocab_size} cannot hold the characters of this text; give at least {needed[2]}"
            ) from error
        raise ValueError(f"no vocabulary of {vocab_size} could be learnt from this text: {error}") from error
    return model.getvalue()


class Cuts:
    """What a word becomes by each lot of BPE-dropout that was drawn for it so far. Most lots give the same few ways, so that
    all of them take a kilobyte or two."""

    __slots__ = ("ways", "ways_of_lots")

    def __init__(self) -> None:
        self.ways: list[tuple[int, ...]] = [()]
        self.ways_of_lots = bytearray(LOTS)  # indices; 0 is a lot that was not drawn yet

    def remember(self, lot: int, way: tuple[int, ...]) -> None:
        """Whatever another thread may do in between."""
        if way not in self.ways:
            self.ways.append(way)
        if (index := self.ways.index(way)) < 256:
            self.ways_of_lots[lot] = index


class Subwords:
    """One SentencePiece model: text to ids and back."""

    def __init__(self, model: bytes) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError("this is no SentencePiece model") from error
        self.model = model
        self._cuts: dict[tuple[float, str], Cuts] = {}  # by dropout and word
        end = int(self._processor.piece_to_id(MARIAN))
        self.is_marian = bool(self._processor.is_control(end))
        self._num_ids = end if self.is_marian else int(self._processor.get_piece_size())

    def __len__(self) -> int:
        return self._num_ids

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without BOS or EOS."""
        if self.is_marian:
            return [self._encode_as_marian(text) for text in texts]
        num_threads = 1 if len(texts) < MANY else -1  # all there are, which take longer to start than a few texts do
        ids: list[list[int]] = self._processor.encode(list(texts), num_threads=num_threads)
        return ids

    def _encode_as_marian(self, text: str) -> list[int]:
        """As Marian's users do it: a language code is cut off first, and pieces are looked up by what they say, so that a
        word which this side's model does not know may still be a piece of the other side's."""
        code = LANGUAGE_CODE.match(text)
        pieces: list[str] = self._processor.encode(text[code.end() :] if code else text, out_type=str)
        ids = [int(self._processor.piece_to_id(piece)) for piece in ([code[0], *pieces] if code else pieces)]
        return [n if UNK_ID < n < len(self) else UNK_ID for n in ids]

    def encode_with_dropout(self, texts: Sequence[str], *, dropout: float, seed: int) -> list[list[int]]:
        """BPE-dropout (Provilkov et al. 2020) of normalised text: each merge is left out with this probability. One seed,
        one result; which is why it is done here: SentencePiece mixes its seed with a number that every process draws."""
        if self.is_marian:
            raise ValueError(
                "BPE-dropout needs subwords that regard learnt, and these are imported; set train.bpe_dropout=0"
            )
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
        """What a word becomes by the merges that this lot leaves out. Those of a short word are remembered: text repeats its
        words, and to merge anew each time would be many times slower. So a word has as many cuts as there are lots, the same
        in every run; how often it is cut at all is right for all words together, and for each of them nearly."""
        way = tuple(self._merged(SPACE + word, dropout, random.Random(f"{word} {lot}").random))
        if len(word) <= LONGEST_KEPT:
            self._cuts.setdefault((dropout, word), Cuts()).remember(lot, way)
        return way

    def _merged(self, word: str, dropout: float, draw: Callable[[], float]) -> list[int]:
        """Again and again the best of the merges that are not left out, until none is there."""
        symbols = list(word)
        while (best := self._best_merge(symbols, dropout, draw)) >= 0:
            symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
        return [token for symbol in symbols for token in self._ids_of(symbol)]

    def _best_merge(self, symbols: Sequence[str], dropout: float, draw: Callable[[], float]) -> int:
        """The place of the first of two symbols to merge; -1: none can be."""
        best, best_score = -1, -math.inf
        for place in range(len(symbols) - 1):
            score = self._scores.get(symbols[place] + symbols[place + 1], -math.inf)
            if score > best_score and draw() >= dropout:  # a merge that would not be chosen needs no lot
                best, best_score = place, score
        return best

    def merges(self, word: str) -> list[list[str]]:
        """How a word is put together: its letters, and what they are after each merge."""
        symbols = list(SPACE + word)
        states = [list(symbols)]
        while (best := self._best_merge(symbols, 0.0, lambda: 1.0)) >= 0:
            symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
            states.append(list(symbols))
        return states

    def _ids_of(self, symbol: str) -> list[int]:
        """A piece is one id; what is none is spelled in bytes."""
        if symbol in self._scores:
            return [int(self._processor.piece_to_id(symbol))]
        return [int(self._processor.piece_to_id(f"<0x{byte:02X}>")) for byte in symbol.encode("utf-8")]

    @cached_property
    def _scores(self) -> dict[str, float]:
        """How early each piece was learnt: the earliest has the highest score. Special tokens and bytes are no text."""
        return {self._processor.id_to_piece(n): self._processor.get_score(n) for n in range(NUM_RESERVED, len(self))}

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids; special tokens have none."""
        text: str = self._processor.decode([token for token in ids if token > UNK_ID])
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        pieces: list[str] = self._processor.id_to_piece(list(ids))
        return pieces

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The opposite of `pieces`; what is no piece is unknown."""
        ids: list[int] = self._processor.piece_to_id(list(pieces))
        return [n if n < len(self) else UNK_ID for n in ids]

    def knows(self, character: str) -> bool:
        """Whether a character is a piece; others are spelled in bytes."""
        return not self._processor.is_unknown(self._processor.piece_to_id(character))


@dataclass(frozen=True)
class Tokenizer:
    """Both sides' subwords: the same ones, or a model for each."""

    src: Subwords
    tgt: Subwords

    @property
    def is_shared(self) -> bool:
        return self.src.model == self.tgt.model

    def save(self, folder: Path) -> None:
        """`tokenizer.model`, or `tokenizer.src.model` and `tokenizer.tgt.model`."""
        for name, model in self.files().items():
            (folder / name).write_bytes(model)

    def is_in(self, folder: Path) -> bool:
        """Whether a folder's tokenizer is this one."""
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
            raise ValueError(f"there is no tokenizer in {folder}")
        return cls(*(Subwords((folder / f"tokenizer.{side}.model").read_bytes()) for side in ("src", "tgt")))
