"""What a model is made of: frozen dataclasses that check themselves, and the four presets."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "silu"]
Positions = Literal["sinusoidal", "learned"]
SharedEmbeddings = Literal["all", "target", "none"]

CHOICES: dict[str, tuple[str, ...]] = {
    "norm": get_args(Norm),
    "activation": get_args(Activation),
    "positions": get_args(Positions),
    "shared_embeddings": get_args(SharedEmbeddings),
}
COUNTS = (
    "src_vocab_size",
    "tgt_vocab_size",
    "encoder_layers",
    "decoder_layers",
    "d_model",
    "num_heads",
    "d_ff",
    "max_positions",
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The Transformer's sizes and options. The defaults are the paper's base model (Table 3)."""

    src_vocab_size: int
    tgt_vocab_size: int
    pad_id: int = 0
    encoder_layers: int = 6
    decoder_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    norm: Norm = "post"
    activation: Activation = "relu"
    positions: Positions = "sinusoidal"
    max_positions: int = 1024  # learned positions only; sinusoids have no maximum
    # "all": source, target and output share one matrix (section 3.4); "target": target and output.
    shared_embeddings: SharedEmbeddings = "all"
    dropout: float = 0.1  # on the output of each sub-layer
    embedding_dropout: float = 0.1  # on embedding + position
    attention_dropout: float = 0.0  # on attention weights
    activation_dropout: float = 0.0  # between the two maps of the feed-forward network

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"model.{name} is {value!r}; it must be one of {', '.join(choices)}")
        for name in COUNTS:
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for field in fields(self):
            if field.name.endswith("dropout"):
                self._require(field.name, 0.0 <= getattr(self, field.name) < 1.0, "at least 0 and below 1")
        smallest_vocab = min(self.src_vocab_size, self.tgt_vocab_size)
        self._require("pad_id", 0 <= self.pad_id < smallest_vocab, f"an id below {smallest_vocab}")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"model.d_model = {self.d_model} cannot be split evenly over model.num_heads = {self.num_heads}"
            )
        self._require("d_model", self.positions == "learned" or self.d_model % 2 == 0, "even for sinusoidal positions")
        if self.shared_embeddings == "all" and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f"model.shared_embeddings is 'all', but the source vocabulary has {self.src_vocab_size} entries and the "
                f"target vocabulary {self.tgt_vocab_size}; use 'target' or 'none' for separate vocabularies"
            )

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"model.{name} is {getattr(self, name)}; it must be {what}")

    @property
    def d_head(self) -> int:
        return self.d_model // self.num_heads

    @classmethod
    def preset(cls, name: str, *, vocab_size: int) -> "ModelConfig":
        """One of the named sizes, with one vocabulary for both sides."""
        if name not in PRESETS:
            raise ValueError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
        layers, d_model, num_heads, d_ff, dropout = PRESETS[name]
        return cls(
            src_vocab_size=vocab_size,
            tgt_vocab_size=vocab_size,
            encoder_layers=layers,
            decoder_layers=layers,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            embedding_dropout=dropout,
        )


# name: (layers on each side, d_model, heads, d_ff, dropout). "base" and "big" are the paper's (Table 3).
PRESETS: dict[str, tuple[int, int, int, int, float]] = {
    "tiny": (2, 64, 4, 128, 0.0),
    "small": (3, 256, 4, 1024, 0.1),
    "base": (6, 512, 8, 2048, 0.1),
    "big": (6, 1024, 16, 4096, 0.3),
}


@dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """Limits of the filters; 0 or false turns one off. Lengths are in characters: words are no unit in Chinese."""

    max_characters: int = 1000
    max_tokens: int = 256  # subwords on either side
    max_ratio: float = 6.0  # the longer side over the shorter, where the longer has at least `ratio_from` characters
    ratio_from: int = 20
    drop_empty: bool = True
    drop_duplicates: bool = True
    drop_copies: bool = True
    drop_wrong_script: bool = True
    drop_control_characters: bool = True


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Two aligned files, or one .tsv, .jsonl or .tmx that holds both sides. `weight` is how often each of its pairs is seen
    in an epoch: 2 is twice, 0.5 every other epoch."""

    src: str
    tgt: str | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"data.weight is {self.weight} for {self.src}; it must be a number above 0")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What to learn from, and into what subwords to cut it."""

    train: tuple[CorpusConfig, ...]
    valid: CorpusConfig
    test: tuple[CorpusConfig, ...] = ()  # never trained on; looked at for leakage only
    src_lang: str = ""
    tgt_lang: str = ""
    vocab_size: int = 0  # 0: by the size of the corpus
    shared_vocab: bool = True
    sample_pairs: int = 200_000  # the subwords are learnt from as many, drawn by `seed`
    seed: int = 1
    cleaning: CleaningConfig = CleaningConfig()
