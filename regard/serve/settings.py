"""The settings of a server: its address, API keys, and limits."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from regard.errors import UserError

MEBIBYTE = 2**20
NAME = re.compile(r"[\w.-]+|\[[0-9a-fA-F:.]+\]")
ORIGIN = re.compile(rf"https?://({NAME.pattern})(:\d+)?")
MOST_TEXTS = 1000  # in a request, for any setting


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request."""

    body_bytes: int = MEBIBYTE
    characters: int = 5000  # of a text
    texts: int = 64
    beam: int = 16
    alternatives: int = 10
    seconds: float = 30.0  # for reading it, and again for answering it

    def __post_init__(self) -> None:
        for name in ("body_bytes", "characters", "texts", "beam"):
            if getattr(self, name) < 1:
                raise UserError(f"a limit of {getattr(self, name)} {name.replace('_', ' ')} allows nothing; give at least 1")
        if self.texts > MOST_TEXTS:
            raise UserError(f"a limit of {self.texts:,} texts in a request; give at most {MOST_TEXTS:,}")
        if self.alternatives < 0:
            raise UserError(f"{self.alternatives} alternatives at most; give 0 or more")
        if not 0 < self.seconds < 1e6:
            raise UserError(f"a limit of {self.seconds} seconds; give more than 0")


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Limits of all requests together."""

    wait_seconds: float = 0.005  # for further texts of the same batch
    batch_tokens: int = 0  # source tokens of a batch; 0: a number that suits the device
    queue_tokens: int = 0  # source tokens that may wait; 0: 16 batches
    queue_requests: int = 512  # that may wait; each holds a connection, and a process often has at most 1,024
    patience_seconds: float = 15.0  # the queue is shorter if it would take longer than this

    def __post_init__(self) -> None:
        if not 0 <= self.wait_seconds <= 1:
            raise UserError(f"a batch would wait {self.wait_seconds} s for others; give between 0 and 1")
        if min(self.batch_tokens, self.queue_tokens) < 0:
            raise UserError("a batch and a queue have at least 1 token; give 0 for what suits the device")
        if self.queue_requests < 1:
            raise UserError(f"{self.queue_requests} requests may wait; give at least 1")


DEFAULT_LIMITS, DEFAULT_QUEUE = Limits(), Queue()


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All settings of `regard serve`."""

    runs: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()  # empty: no key is needed
    cors: tuple[str, ...] = ()  # origins whose pages may send requests
    names: tuple[str, ...] = ()  # further host names of this server
    device: str = "auto"
    limits: Limits = DEFAULT_LIMITS
    queue: Queue = DEFAULT_QUEUE

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("give at least one run to serve")
        if not 0 <= self.port <= 65535:
            raise UserError(f"there is no port {self.port}; give one from 1 to 65535, or 0 for any that is free")
        if not all(key and key.isascii() and key.isprintable() and " " not in key for key in self.api_keys):
            raise UserError("an API key is empty, or has characters that headers do not carry; give letters and digits")
        for origin in self.cors:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise UserError(f"--cors {origin} is not an origin; give one like https://their.example, without a path")
        for name in self.names:
            if not NAME.fullmatch(name):
                raise UserError(f"--name {name} is not a host name; give one like translate.example")


def is_every_interface(address: str) -> bool:
    """Return whether a socket with this address is bound to all interfaces."""
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def is_this_machine(host: str) -> bool:
    """Return whether this address can only be reached from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:  # not an address but a name
        return host.lower() == "localhost"
