"""Everything a run can be told: frozen dataclasses that check themselves, and the four presets."""

import difflib
import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "silu"]
Positions = Literal["sinusoidal", "learned", "none"]
SharedEmbeddings = Literal["all", "target", "none"]
ModelKind = Literal["transformer", "rnn", "rnn-attention", "language"]
Cell = Literal["lstm", "gru"]
Score = Literal["additive", "dot", "scaled"]
Ablation = Literal["none", "scale", "residual", "causal-mask", "query-key", "key-value", "projections"]
Optimizer = Literal["adam", "muon"]
Schedule = Literal["inverse_sqrt", "linear", "cosine"]
Precision = Literal["auto", "float32", "bfloat16", "float64"]
Compile = Literal["auto", "on", "off"]
Kernels = Literal["auto", "on", "off"]

CHOICES: dict[str, tuple[str, ...]] = {
    "kind": get_args(ModelKind),
    "norm": get_args(Norm),
    "activation": get_args(Activation),
    "positions": get_args(Positions),
    "shared_embeddings": get_args(SharedEmbeddings),
    "cell": get_args(Cell),
    "score": get_args(Score),
    "ablation": get_args(Ablation),
}
COUNTS = (
    "src_vocab_size",
    "tgt_vocab_size",
    "encoder_layers",
    "decoder_layers",
    "d_model",
    "num_heads",
    "d_ff",
    "d_state",
    "max_positions",
    "context",
)
RECURRENT: tuple[ModelKind, ...] = ("rnn", "rnn-attention")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model's sizes and options. The defaults are the paper's base model (Table 3); what belongs to one kind of model only
    says so, and the others pass it over."""

    src_vocab_size: int  # the tokenizer's; not to be set
    tgt_vocab_size: int  # the tokenizer's; not to be set
    # "rnn": encoder and decoder with one fixed vector between; "rnn-attention": with attention; "language": decoder only.
    kind: ModelKind = "transformer"
    pad_id: int = 0  # the tokenizer's; not to be set
    encoder_layers: int = 6  # N on the left of Figure 1
    decoder_layers: int = 6  # N on its right
    d_model: int = 512  # of every vector between layers
    num_heads: int = 8  # among which d_model is divided
    d_ff: int = 2048  # inside the feed-forward networks
    norm: Norm = "post"  # the Transformer's LayerNorm after each residual sum, as in the paper, or before each sub-layer
    activation: Activation = "relu"  # of the Transformer's feed-forward networks
    positions: Positions = "sinusoidal"  # of the Transformer: section 3.5, or a table that is learnt, or none
    max_positions: int = 1024  # learned positions only; sinusoids have no maximum
    # "all": source, target and output share one matrix (section 3.4); "target": target and output.
    shared_embeddings: SharedEmbeddings = "all"
    output_bias: bool = False  # added to a translator's logits; the paper has none, imported models do
    dropout: float = 0.1  # on the output of each sub-layer
    embedding_dropout: float = 0.1  # on embedding + position
    attention_dropout: float = 0.0  # on attention weights
    activation_dropout: float = 0.0  # between the two maps of the feed-forward network
    cell: Cell = "lstm"  # of the RNNs
    d_state: int = 512  # of the RNNs' states
    score: Score = "additive"  # how rnn-attention compares a state with the source; "scaled" is the Transformer's
    key_value_heads: int = 0  # of the language model, which its heads share; 0: as many as num_heads
    rotary_base: float = 10_000.0  # of the language model: the slowest pair turns once in about 2π times as many positions
    norm_epsilon: float = 1e-6  # of the language model's RMSNorm
    context: int = 256  # tokens that a language model learns from at once
    ablation: Ablation = "none"  # one thing taken out of the Transformer, to see what it was good for

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
        if self.d_model % self.num_heads and not self.is_recurrent:
            raise ValueError(
                f"model.d_model = {self.d_model} cannot be split evenly over model.num_heads = {self.num_heads}"
            )
        if self.kind == "language":
            self._require_language()
        has_sinusoids = self.kind == "transformer" and self.positions == "sinusoidal"
        self._require("d_model", not has_sinusoids or self.d_model % 2 == 0, "even for sinusoidal positions")
        self._require("context", self.context >= 2, "at least 2, for one token has nothing before it")
        self._require("ablation", self.ablation == "none" or self.kind == "transformer", "none: only Transformers have it")
        if self.shared_embeddings == "all" and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f"model.shared_embeddings is 'all', but the source vocabulary has {self.src_vocab_size} entries and the "
                f"target vocabulary {self.tgt_vocab_size}; use 'target' or 'none' for separate vocabularies"
            )

    def _require_language(self) -> None:
        heads = self.key_value_heads or self.num_heads
        fits = 1 <= heads <= self.num_heads and self.num_heads % heads == 0
        self._require("key_value_heads", fits, f"0, or a divisor of model.num_heads = {self.num_heads}")
        self._require("rotary_base", 1.0 < self.rotary_base < math.inf, "a number above 1")
        self._require("norm_epsilon", 0.0 < self.norm_epsilon < 1.0, "above 0 and below 1")
        self._require("d_model", self.d_head % 2 == 0, "an even multiple of model.num_heads: pairs of dimensions are turned")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"model.{name} is {getattr(self, name)}; it must be {what}")

    @property
    def is_recurrent(self) -> bool:
        return self.kind in RECURRENT

    @property
    def d_head(self) -> int:
        return self.d_model // self.num_heads

    @property
    def longest_sequence(self) -> int:
        """In tokens, on either side. Sinusoids, rotations and RNNs have no end, but memory has."""
        is_table = self.positions == "learned" and self.kind == "transformer"
        return self.max_positions if is_table else 2**20

    @classmethod
    def preset(cls, name: str, *, vocab_size: int, kind: ModelKind = "transformer") -> "ModelConfig":
        """One of the named sizes, with one vocabulary for both sides."""
        return cls(src_vocab_size=vocab_size, tgt_vocab_size=vocab_size, **model_preset(name, kind))


# name: (layers on each side, d_model, heads, d_ff, dropout). "base" and "big" are the paper's (Table 3).
PRESETS: dict[str, tuple[int, int, int, int, float]] = {
    "tiny": (2, 64, 4, 128, 0.0),
    "small": (3, 256, 4, 1024, 0.1),
    "base": (6, 512, 8, 2048, 0.1),
    "big": (6, 1024, 16, 4096, 0.3),
}
# name: (layers on each side, d_state of rnn, d_state of rnn-attention). As many parameters as the Transformer's, to 1 %.
RECURRENT_PRESETS: dict[str, tuple[int, int, int]] = {
    "tiny": (1, 88, 64),
    "small": (2, 384, 272),
    "base": (2, 1128, 800),
    "big": (2, 2256, 1600),
}


def model_preset(name: str, kind: ModelKind = "transformer") -> dict[str, Any]:
    """The fields of a `ModelConfig` that a preset decides."""
    if name not in PRESETS:
        meant = difflib.get_close_matches(name, PRESETS, n=1)
        advice = f"did you mean {meant[0]}?" if meant else f"choose one of {', '.join(PRESETS)}"
        raise ValueError(f"there is no preset {name!r}; {advice}")
    layers, d_model, num_heads, d_ff, dropout = PRESETS[name]
    of_kind: dict[str, Any] = {}
    if kind in RECURRENT:
        layers, *states = RECURRENT_PRESETS[name]
        of_kind = {"num_heads": 1, "d_state": states[RECURRENT.index(kind)]}
    if kind == "language":  # as many layers as both sides have; three matrices of two thirds the size, instead of two
        of_kind = {"decoder_layers": 2 * layers, "d_ff": 16 * math.ceil(d_ff / 24), "shared_embeddings": "none"}
    return {
        "kind": kind,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "d_model": d_model,
        "num_heads": num_heads,
        "d_ff": d_ff,
        "dropout": dropout,
        "embedding_dropout": dropout,
        **of_kind,
    }


@dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """Limits of the filters; 0 or false turns one off. Lengths are in characters: words are no unit in Chinese. Of plain
    text for a language model, only what is empty or has control characters is dropped."""

    max_characters: int = 1000  # on either side
    max_tokens: int = 256  # subwords on either side
    max_ratio: float = 6.0  # the longer side over the shorter, where the longer has at least `ratio_from` characters
    ratio_from: int = 20  # characters; the ratio of short texts says nothing
    drop_empty: bool = True  # pairs with nothing on one side
    drop_duplicates: bool = True  # pairs that were there before, to the letter
    drop_copies: bool = True  # pairs whose target is their source, where the two are in different languages
    drop_wrong_script: bool = True  # pairs whose letters are not those of their language
    drop_control_characters: bool = True  # pairs with characters that no text has


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Two aligned files, or one .tsv, .jsonl or .tmx that holds both sides; for a language model, a file of plain text.
    `weight` is how often each of its pairs is seen in an epoch: 2 is twice, 0.5 every other epoch."""

    src: str = ""  # a file of source text, or one that holds both sides
    tgt: str | None = None  # the file beside it, line by line
    text: str = ""  # a file of plain text instead, a text a line
    weight: float = 1.0  # how often each of its pairs is seen in an epoch

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"data.weight is {self.weight} for {self.name}; it must be a number above 0")
        if self.text and (self.src or self.tgt):
            raise ValueError(f"{self.text} is plain text and {self.src or self.tgt} one of a pair; give one of the two")

    @property
    def name(self) -> str:
        """The file that errors and reports call it by."""
        return self.text or self.src


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What to learn from, and into what subwords to cut it."""

    train: tuple[CorpusConfig, ...]  # to learn from
    valid: CorpusConfig  # to validate on
    test: tuple[CorpusConfig, ...] = ()  # never trained on; looked at for leakage only
    src_lang: str = ""  # its code, such as de; by the command line, the file's suffix
    tgt_lang: str = ""  # the same of the target side
    vocab_size: int = 0  # subwords; 0: by the size of the corpus
    shared_vocab: bool = True  # one set of subwords for both sides
    sample_pairs: int = 200_000  # the subwords are learnt from as many, drawn by `seed`
    seed: int = 1  # of that sample
    cleaning: CleaningConfig = CleaningConfig()


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model learns. The defaults are the paper's (section 5); 0 and "auto" are settled when a run begins, and what was
    settled is stored with it."""

    steps: int = 0  # updates; 0: as many as `minutes` allow, or else about 30 epochs
    minutes: float = 0.0  # turned into steps by the speed of the first seconds, and planned anew as it goes
    batch_tokens: int = 25_000  # of an update, padding included, on its larger side; AUTO (-1): what fits the GPU
    accumulation: int = 0  # the batches an update is made of; 0: as few as keep padding at 5 %
    optimizer: Optimizer = "adam"  # "muon": Muon for the matrices of linear maps, and Adam for the rest
    schedule: Schedule = "inverse_sqrt"  # after the warm-up: as the paper's, or down to nothing at the last step
    learning_rate: float = 0.0  # at its highest, when the warm-up ends; 0: (d_model · warmup)^-½, equation 3
    warmup: int = 4000  # 0: a fifth of the steps, at most 400
    label_smoothing: float = 0.1  # ε of section 5.4
    r_drop: float = 0.0  # weight α of R-Drop, by which two passes with different dropout shall agree; 0: off, one pass
    adam_beta1: float = 0.9  # β₁ of section 5.3
    adam_beta2: float = 0.98  # β₂ of section 5.3
    adam_epsilon: float = 1e-9  # ε of section 5.3
    clip_norm: float = 0.0  # 0: gradients are not clipped
    bpe_dropout: float = 0.0  # how likely a merge of subwords is left out, anew each time a sentence is seen
    seed: int = 1  # of first values, order, dropout and BPE-dropout
    device: str = "auto"  # cpu, cuda or mps; "auto": cuda where there is one
    precision: Precision = "auto"  # of the arithmetic; weights are float32 in any case but float64. "auto": bfloat16 on CUDA
    compile: Compile = "auto"  # torch.compile; "auto": for long runs on CUDA
    kernels: Kernels = "auto"  # our own, over batches without padding; "auto": for Transformers on one GPU, in bfloat16
    deterministic: bool = False  # the same bits every time on CUDA too, and slower; a CPU always does
    threads: int = 0  # of a CPU; kept for the run's life, because sums depend on it
    log_every: int = 0  # updates between two lines of metrics
    valid_every: int = 0  # updates between two validations
    save_every: int = 0  # updates between two checkpoints
    keep_checkpoints: int = 5  # the last ones, whose average is what translates
    patience: int = 0  # validations without a better BLEU, or loss, before training stops early; 0: never
    bleu_sentences: int = 2000  # of the validation text, translated at each validation; 0: none, and loss decides

    def __post_init__(self) -> None:
        for name in ("label_smoothing", "adam_beta1", "adam_beta2", "bpe_dropout"):
            self._require(name, 0.0 <= getattr(self, name) < 1.0, "at least 0 and below 1")
        for name in ("steps", "warmup", "accumulation", "threads", "log_every", "valid_every", "save_every", "patience"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        for name in ("minutes", "learning_rate", "r_drop", "clip_norm", "bleu_sentences"):
            self._require(name, 0 <= getattr(self, name) < math.inf, "a number of at least 0")
        self._require("keep_checkpoints", self.keep_checkpoints >= 1, "at least 1")
        self._require("seed", 0 <= self.seed < 2**63, "at least 0 and below 2^63")
        self._require("adam_epsilon", 0.0 < self.adam_epsilon < math.inf, "above 0")
        self._require("batch_tokens", self.batch_tokens >= 1 or self.batch_tokens == AUTO, "at least 1")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"train.{name} is {getattr(self, name)}; it must be {what}")


AUTO = -1

# Where a preset leaves the paper's training, because it was measured to be better (docs/deviations.md).
TRAIN_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"batch_tokens": 1024, "schedule": "linear", "learning_rate": 2e-3, "warmup": 0, "clip_norm": 1.0},
    "small": {"batch_tokens": 4096, "schedule": "linear", "learning_rate": 2e-3, "warmup": 0, "clip_norm": 1.0},
    "base": {},
    "big": {},
}


def train_preset(name: str, kind: ModelKind = "transformer", *, paper: bool = False) -> dict[str, Any]:
    """The fields of a `TrainConfig` that a preset decides. Where the text itself is the goal, its probability is: a language
    model's labels are not smoothed."""
    return ({"label_smoothing": 0.0} if kind == "language" else {}) | ({} if paper else TRAIN_PRESETS[name])


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All of a run: what `config.json` holds."""

    preset: str = "small"  # the sizes to begin with
    paper: bool = False  # the paper's training, whatever the preset would rather do
    prepared: str = ""  # a folder that `regard prepare` made, to be used instead of preparing
    start_from: str = ""  # another run, whose weights and tokenizer this one begins with
    planned: tuple[str, ...] = ()  # what a run by the clock plans itself, and plans anew as it goes; not to be set
    longest: int = 0  # subwords of the longest source it learns from, which a run finds out itself; 0: not known
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
