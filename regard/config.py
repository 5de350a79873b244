"""The settings of a run: frozen dataclasses that check themselves, and the four presets."""

import difflib
import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin

from regard.errors import UserError

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

RECURRENT: tuple[ModelKind, ...] = ("rnn", "rnn-attention")
NO_LIMIT = 1024  # subwords of a source, for a run that learns from texts of any length


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model's sizes and options. The defaults are the paper's base model (Table 3). Some settings are of one kind of model
    only, as they say; other kinds ignore them."""

    src_vocab_size: int  # the tokenizer's; not to be set
    tgt_vocab_size: int  # the tokenizer's; not to be set
    # "rnn": encoder and decoder with one fixed vector between; "rnn-attention": with attention; "language": decoder only.
    kind: ModelKind = "transformer"
    pad_id: int = 0  # the tokenizer's; not to be set
    encoder_layers: int = 6  # N on the left of Figure 1
    decoder_layers: int = 6  # N on the right of Figure 1
    d_model: int = 512  # size of the vectors between layers
    num_heads: int = 8  # heads that d_model is divided among
    d_ff: int = 2048  # inner size of the feed-forward networks
    norm: Norm = "post"  # the Transformer's LayerNorm: after each residual sum, as in the paper, or before each sub-layer
    activation: Activation = "relu"  # in the Transformer's feed-forward networks
    positions: Positions = "sinusoidal"  # the Transformer's: as in section 3.5, a learnt table, or none
    max_positions: int = 1024  # of learned positions; sinusoids have no maximum
    # "all": source, target and output share one matrix (section 3.4); "target": target and output.
    shared_embeddings: SharedEmbeddings = "all"
    output_bias: bool = False  # added to a translator's logits; the paper has none, imported models do
    dropout: float = 0.1  # on the output of each sub-layer
    embedding_dropout: float = 0.1  # on embedding + position
    attention_dropout: float = 0.0  # on attention weights
    activation_dropout: float = 0.0  # between the two maps of the feed-forward network
    cell: Cell = "lstm"  # the RNNs' cell
    d_state: int = 512  # size of the RNNs' states
    score: Score = "additive"  # the attention score of rnn-attention; "scaled" is the Transformer's
    key_value_heads: int = 0  # heads of the language model's keys and values; 0: as many as num_heads
    rotary_base: float = 10_000.0  # of the language model's rotary positions: the longest wavelength over 2π
    norm_epsilon: float = 1e-6  # ε of the language model's RMSNorm
    context: int = 256  # tokens of a window of a language model
    ablation: Ablation = "none"  # a part left out of the Transformer, to measure its effect

    def __post_init__(self) -> None:
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(field.type)
            if get_origin(field.type) is Literal and value not in choices:
                raise UserError(f"model.{field.name} is {value!r}; it must be one of {', '.join(choices)}")
            if field.name.endswith("dropout"):
                self._require(field.name, 0.0 <= value < 1.0, "at least 0 and below 1")
            if field.type is int and field.name not in ("pad_id", "key_value_heads"):
                self._require(field.name, value >= 1, "at least 1")
        smallest_vocab = min(self.src_vocab_size, self.tgt_vocab_size)
        self._require("pad_id", 0 <= self.pad_id < smallest_vocab, f"an id below {smallest_vocab}")
        if self.d_model % self.num_heads and not self.is_recurrent:
            raise UserError(f"model.d_model = {self.d_model} cannot be split evenly over model.num_heads = {self.num_heads}")
        if self.kind == "language":
            self._require_language()
        has_sinusoids = self.kind == "transformer" and self.positions == "sinusoidal"
        self._require("d_model", not has_sinusoids or self.d_model % 2 == 0, "even for sinusoidal positions")
        self._require("context", self.context >= 2, "at least 2, for one token has nothing before it")
        self._require("ablation", self.ablation == "none" or self.kind == "transformer", "none: only Transformers have it")
        if self.shared_embeddings == "all" and self.src_vocab_size != self.tgt_vocab_size:
            raise UserError(
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
            raise UserError(f"model.{name} is {getattr(self, name)}; it must be {what}")

    @property
    def is_recurrent(self) -> bool:
        return self.kind in RECURRENT

    @property
    def d_head(self) -> int:
        return self.d_model // self.num_heads

    @property
    def longest_sequence(self) -> int:
        """The longest sequence on either side, in tokens. Only learned positions limit it below the limits of memory."""
        is_table = self.positions == "learned" and self.kind == "transformer"
        return self.max_positions if is_table else 2**20

    @classmethod
    def preset(cls, name: str, *, vocab_size: int, kind: ModelKind = "transformer") -> "ModelConfig":
        """Return a model of one of the named sizes, with one vocabulary for both sides."""
        return cls(src_vocab_size=vocab_size, tgt_vocab_size=vocab_size, **model_preset(name, kind))


# name: (layers on each side, d_model, heads, d_ff, dropout). "base" and "big" are the paper's (Table 3).
PRESETS: dict[str, tuple[int, int, int, int, float]] = {
    "tiny": (2, 64, 4, 128, 0.0),
    "small": (3, 256, 4, 1024, 0.1),
    "base": (6, 512, 8, 2048, 0.1),
    "big": (6, 1024, 16, 4096, 0.3),
}
# name: (layers on each side, d_state of rnn, d_state of rnn-attention), for as many parameters as the Transformer's, to 1 %.
RECURRENT_PRESETS: dict[str, tuple[int, int, int]] = {
    "tiny": (1, 88, 64),
    "small": (2, 384, 272),
    "base": (2, 1128, 800),
    "big": (2, 2256, 1600),
}


def model_preset(name: str, kind: ModelKind = "transformer") -> dict[str, Any]:
    """Return the fields of a `ModelConfig` that a preset sets."""
    if name not in PRESETS:
        meant = difflib.get_close_matches(name, PRESETS, n=1)
        advice = f"did you mean {meant[0]}?" if meant else f"choose one of {', '.join(PRESETS)}"
        raise UserError(f"there is no preset {name!r}; {advice}")
    layers, d_model, num_heads, d_ff, dropout = PRESETS[name]
    of_kind: dict[str, Any] = {}
    if kind in RECURRENT:
        layers, *states = RECURRENT_PRESETS[name]
        of_kind = {"num_heads": 1, "d_state": states[RECURRENT.index(kind)]}
    if kind == "language":  # as many parameters: the layers of both sides; three matrices of 2/3 the size, not two
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
    """Limits of the filters; 0 or false turns one off. Lengths are in characters, because Chinese has no spaces between
    words. Plain text for a language model is dropped only if it is empty or has control characters."""

    max_characters: int = 1000  # on either side
    max_tokens: int = 256  # subwords on either side
    max_ratio: float = 6.0  # the longer side over the shorter, if the longer has at least `ratio_from` characters
    ratio_from: int = 20  # characters; shorter texts vary too much
    drop_empty: bool = True  # pairs with an empty side
    drop_duplicates: bool = True  # pairs that occurred before, to the letter
    drop_copies: bool = True  # pairs whose target equals their source, if the languages differ
    drop_wrong_script: bool = True  # pairs with too few letters of their language's script
    drop_control_characters: bool = True  # pairs with control characters


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Two aligned files, or one .tsv, .jsonl or .tmx that holds both sides; for a language model, a file of plain text.
    `weight` is how often each of its pairs is seen in an epoch: 2 is twice, 0.5 every other epoch."""

    src: str = ""  # a file of source text, or one that holds both sides
    tgt: str | None = None  # the file beside it, line by line
    text: str = ""  # a file of plain text instead, one text a line
    weight: float = 1.0  # how often each of its pairs is seen in an epoch

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise UserError(f"data.weight is {self.weight} for {self.name}; it must be a number above 0")
        if self.text and (self.src or self.tgt):
            raise UserError(f"{self.text} is plain text and {self.src or self.tgt} one of a pair; give one of the two")

    @property
    def name(self) -> str:
        """The file that identifies the corpus in errors and reports."""
        return self.text or self.src


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text to learn from, and its subwords."""

    train: tuple[CorpusConfig, ...]  # to learn from
    valid: CorpusConfig | None = None  # to validate on; without one, some pairs or texts of `train` are kept apart
    test: tuple[CorpusConfig, ...] = ()  # never trained on; checked for leakage
    src_lang: str = ""  # code of the source language, such as de; default on the command line: the file's suffix
    tgt_lang: str = ""  # code of the target language
    vocab_size: int = 0  # subwords; 0: by the size of the corpus
    shared_vocab: bool = True  # one set of subwords for both sides
    sample_pairs: int = 200_000  # size of the sample that subwords are learnt from, drawn by `seed`
    seed: int = 1  # of that sample, and of the text that is kept apart
    cleaning: CleaningConfig = CleaningConfig()


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of training. The defaults are the paper's (section 5); what 0 and "auto" mean is decided when a run
    begins, and stored with it."""

    steps: int = 0  # updates; 0: as many as `minutes` allow, or else about 30 epochs
    minutes: float = 0.0  # turned into steps by the speed of the first seconds, and again as the run goes on
    batch_tokens: int = 25_000  # of an update, padding included, on its larger side; -1: as many as fit the GPU
    accumulation: int = 0  # batches of an update; 0: the fewest that keep padding at 5 %
    optimizer: Optimizer = "adam"  # "muon": Muon for the matrices of linear maps, Adam for the rest
    schedule: Schedule = "inverse_sqrt"  # after the warm-up: the paper's, or a decay to 0 at the last step
    learning_rate: float = 0.0  # the maximum, at the end of the warm-up; 0: (d_model · warmup)^-½, equation 3
    warmup: int = 4000  # steps; 0: a fifth of all steps, at most 400
    label_smoothing: float = 0.1  # ε of section 5.4
    r_drop: float = 0.0  # weight α of R-Drop, the divergence of two passes with different dropout; 0: off, one pass
    adam_beta1: float = 0.9  # β₁ of section 5.3
    adam_beta2: float = 0.98  # β₂ of section 5.3
    adam_epsilon: float = 1e-9  # ε of section 5.3
    clip_norm: float = 0.0  # the largest gradient norm; 0: no clipping
    bpe_dropout: float = 0.0  # probability to leave out a merge of subwords, drawn each time a sentence is seen
    seed: int = 1  # of initial weights, order, dropout and BPE-dropout
    device: str = "auto"  # cpu, cuda or mps; "auto": cuda where there is one
    precision: Precision = "auto"  # of the arithmetic; weights are float32 unless it is float64. "auto": bfloat16 on CUDA
    compile: Compile = "auto"  # torch.compile; "auto": for long runs on CUDA
    kernels: Kernels = "auto"  # regard's own, over packed batches; "auto": for Transformers on one GPU, in bfloat16
    deterministic: bool = False  # the same bits every time on CUDA, too, but slower; a CPU always gives the same bits
    threads: int = 0  # of a CPU; constant for a run, because sums depend on it
    log_every: int = 0  # updates between two lines of metrics
    valid_every: int = 0  # updates between two validations
    save_every: int = 0  # updates between two checkpoints
    keep_checkpoints: int = 5  # the last ones; their average translates
    patience: int = 0  # validations without a better BLEU or loss before training stops early; 0: never
    bleu_sentences: int = 2000  # of the validation text, translated at each validation; 0: none, and the loss decides

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
            raise UserError(f"train.{name} is {getattr(self, name)}; it must be {what}")


AUTO = -1

# Deviations from the paper's training that were measured to be better (docs/deviations.md).
TRAIN_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"batch_tokens": 1024, "schedule": "linear", "learning_rate": 2e-3, "warmup": 0, "clip_norm": 1.0},
    "small": {"batch_tokens": 4096, "schedule": "linear", "learning_rate": 2e-3, "warmup": 0, "clip_norm": 1.0},
    "base": {},
    "big": {},
}


def train_preset(name: str, kind: ModelKind = "transformer", *, paper: bool = False) -> dict[str, Any]:
    """Return the fields of a `TrainConfig` that a preset sets. A language model learns without label smoothing, because its
    goal is the probability of the text."""
    return ({"label_smoothing": 0.0} if kind == "language" else {}) | ({} if paper else TRAIN_PRESETS[name])


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of a run, as `config.json` stores them."""

    preset: str = "small"  # defaults of sizes and training
    paper: bool = False  # the paper's training instead of the preset's
    prepared: str = ""  # a folder of `regard prepare`, instead of text to prepare
    start_from: str = ""  # another run, with whose weights and tokenizer this one begins
    planned: tuple[str, ...] = ()  # the settings that a run with `minutes` plans, and plans again; not to be set
    longest: int = 0  # subwords of the longest source it learns from, set by the run; 0: not known
    inherited_limit: int = 0  # the `limit` of a run that begins with another's weights; not to be set
    data: DataConfig
    model: ModelConfig
    train: TrainConfig

    @property
    def limit(self) -> int:
        """The most subwords of a source that the filters let the model learn from."""
        return self.inherited_limit or self.data.cleaning.max_tokens or NO_LIMIT

    def inheriting(self, parent: "RunConfig") -> "RunConfig":
        """Return this run with the limits and languages of the run whose weights it begins with. Limits only grow, because
        weights that have learnt from long texts still know them; a `longest` of 0 is unknown."""
        data, theirs = self.data, parent.data
        return replace(
            self,
            longest=max(self.longest, parent.longest) if parent.longest else 0,
            inherited_limit=max(self.longest, parent.limit),
            data=replace(data, src_lang=data.src_lang or theirs.src_lang, tgt_lang=data.tgt_lang or theirs.tgt_lang),
        )
