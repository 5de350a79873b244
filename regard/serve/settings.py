"""What a server is told: where it listens, who may ask, and how much at once."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

MEBIBYTE = 2**20
NAME = re.compile(r"[\w.-]+|\[[0-9a-fA-F:.]+\]")
ORIGIN = re.compile(rf"https?://({NAME.pattern})(:\d+)?")
MOST_TEXTS = 1000  # whatever the limit


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one request."""

    body_bytes: int = MEBIBYTE
    characters: int = 5000  # of a text
    texts: int = 64
    beam: int = 16
    alternatives: int = 10
    seconds: float = 30.0  # to read it, and then to answer it

    def __post_init__(self) -> None:
        for name in ("body_bytes", "characters", "texts", "beam"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"a limit of {getattr(self, name)} {name.replace('_', ' ')} allows nothing; give at least 1"
                )
        if self.texts > MOST_TEXTS:
            raise ValueError(f"a limit of {self.texts:,} texts in a request; give at most {MOST_TEXTS:,}")
        if self.alternatives < 0:
            raise ValueError(f"{self.alternatives} alternatives at most; give 0 or more")
        if not 0 < self.seconds < 1e6:
            raise ValueError(f"a limit of {self.seconds} seconds; give more than 0")


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Of all requests together."""

    wait_seconds: float = 0.005  # for others to come and be translated in the same batch
    batch_tokens: int = 0  # source tokens of a batch; 0: as many as suit the device
    queue_tokens: int = 0  # that may wait, before others are sent away; 0: 16 batches of them
    queue_requests: int = 512  # that may wait; each keeps a connection open, of which a process usually may have 1,024
    patience_seconds: float = 15.0  # and never more than are likely to be translated in this time

    def __post_init__(self) -> None:
        if not 0 <= self.wait_seconds <= 1:
            raise ValueError(f"a batch would wait {self.wait_seconds} s for others; give between 0 and 1")
        if min(self.batch_tokens, self.queue_tokens) < 0:
            raise ValueError("a batch and a queue have at least 1 token; give 0 for what suits the device")
        if self.queue_requests < 1:
            raise ValueError(f"{self.queue_requests} requests may wait; give at least 1")


DEFAULT_LIMITS, DEFAULT_QUEUE = Limits(), Queue()


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All of it."""

    runs: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()  # none: anyone may ask, with any key
    cors: tuple[str, ...] = ()  # origins whose pages may ask from a browser
    names: tuple[str, ...] = ()  # hosts as which it may be asked, besides its own
    device: str = "auto"
    limits: Limits = DEFAULT_LIMITS
    queue: Queue = DEFAULT_QUEUE

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("give at least one run to serve")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"there is no port {self.port}; give one from 1 to 65535, or 0 for any that is free")
        if not all(key and key.isascii() and key.isprintable() and " " not in key for key in self.api_keys):
            raise ValueError(
                "an API key is empty, or has a space or another character that headers do not carry; give one of letters "
                "and digits that is hard to guess"
            )
        for origin in self.cors:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise ValueError(f"--cors {origin} is no origin; give one like https://their.example, without a path")
        for name in self.names:
            if not NAME.fullmatch(name):
                raise ValueError(f"--name {name} is no host; give one like translate.example")


def is_every_interface(address: str) -> bool:
    """Of an address that a socket is bound to."""
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def is_this_machine(host: str) -> bool:
    """Whether only programs on this machine can reach it."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return host.lower() == "localhost"
