"""`regard serve`: loads runs, listens, and stops when told to, once all that was asked is answered."""

import os
import socket
import sys
from importlib.util import find_spec

from rich.console import Console

from regard.serve.settings import ServeSettings, is_every_interface

BACKLOG = 1024
GRACE_SECONDS = 14  # for requests that are under way; whoever sends SIGTERM waits for 20 in all
CONNECTIONS, OTHER_FILES = 2000, 100
KEEP_ALIVE_SECONDS = 75  # longer than proxies keep a connection, or one would be cut just when it is used again


def serve(settings: ServeSettings) -> None:
    """Until a signal comes. SIGTERM and Ctrl-C finish what is running, and are then a success."""
    if missing := missing_packages():
        raise ValueError(f"{' and '.join(missing)} must be installed to serve: pip install 'regard[serve]'")
    import uvicorn

    from regard.serve.app import make_app
    from regard.serve.service import load_service

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with listening(settings.host, settings.port) as sock:  # before the models are loaded, which takes longer
        service = load_service(settings)
        for run in service.runs:
            console.print(f"{run.src_lang} → {run.tgt_lang}  {run.folder}", markup=False)
        if not settings.api_keys and is_every_interface(sock.getsockname()[0]):
            console.print(
                "warning: whoever reaches this machine may use this server; give --api-key, or leave --host at 127.0.0.1"
            )
        key = "/?api_key=KEY" if settings.api_keys else "/"
        console.print(f"regard serves at {_address(sock)}{key} (its API: /docs; to stop: Ctrl-C)", markup=False)
        config = uvicorn.Config(
            make_app(service),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            limit_concurrency=allowed_connections(),
            http="h11",  # whatever else is installed: it bounds a request's head
        )
        server = uvicorn.Server(config)
        try:
            server.run(sockets=[sock])
        except (KeyboardInterrupt, SystemExit):  # uvicorn raises the signal again when it is done
            if not server.started:
                raise
    if not service.batcher.close(0.0):  # someone's last batch, which nobody waits for any more
        sys.stdout.flush()
        os._exit(0)


def missing_packages() -> list[str]:
    """What serving needs and is not there."""
    return [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]


def allowed_connections() -> int:
    """As many as the system allows, but for some files."""
    try:
        import resource
    except ImportError:  # not on Windows
        return CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - OTHER_FILES)
    return CONNECTIONS


def is_free(host: str, port: int) -> bool:
    """Whether nobody else listens there."""
    try:
        listening(host, port).close()
    except ValueError:
        return False
    return True


def listening(host: str, port: int) -> socket.socket:
    """A socket at this address, or a sentence."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ValueError(f"there is no address {host} here; try --host 127.0.0.1") from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)  # whoever comes before the models are loaded waits, instead of being refused
    except OSError as error:
        sock.close()
        raise ValueError(f"{host} port {port} cannot be listened at ({error.strerror}); try another --port") from error
    return sock


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
