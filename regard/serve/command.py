"""`regard serve`: load runs, listen, and stop after a signal when all requests have been answered."""

import os
import socket
import sys

from rich.console import Console

from regard.errors import UserError, missing_packages
from regard.machine.load import OtherPrograms
from regard.serve.settings import ServeSettings, is_every_interface

BACKLOG = 1024
GRACE_SECONDS = 14  # for running requests, so that all of stopping takes less than 20 s
CONNECTIONS, OTHER_FILES = 2000, 100
PACKAGES = ("fastapi", "uvicorn")
KEEP_ALIVE_SECONDS = 75  # longer than proxies keep a connection, so that they never use one that is being closed


def serve(settings: ServeSettings) -> None:
    """Serve until SIGTERM or Ctrl-C, answer the running requests, and return, which is a success."""
    if missing := missing_packages("regard serve", *PACKAGES):
        raise UserError(missing)
    import torch
    import uvicorn

    from regard.serve.app import make_app
    from regard.serve.service import load_service

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with listening(
        settings.host, settings.port
    ) as sock:  # early, so that a port in use is reported before models are loaded
        others = OtherPrograms()
        service = load_service(settings)
        for run in service.runs:
            console.print(f"{run.src_lang} → {run.tgt_lang}  {run.folder}", markup=False)
        if not settings.api_keys and is_every_interface(sock.getsockname()[0]):
            console.print(
                "warning: anyone who can reach this machine may use the server; give --api-key, or leave --host at 127.0.0.1"
            )
        on_cpu = any(run.translator.device.type == "cpu" for run in service.runs)
        if on_cpu and (complaint := others.complaint(torch.get_num_threads())):
            console.print(f"warning: {complaint}; translations take longer than on an idle machine")
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
            http="h11",  # it bounds the size of headers
        )
        server = uvicorn.Server(config)
        try:
            server.run(sockets=[sock])
        except (KeyboardInterrupt, SystemExit):  # uvicorn raises the signal again when it is done
            if not server.started:
                raise
    if not service.batcher.close(0.0):  # the last batch, whose requests were cancelled, is still running
        sys.stdout.flush()
        os._exit(0)


def allowed_connections() -> int:
    """Return how many connections the limit of open files allows, after raising it if possible."""
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
    """Return whether the address is free to listen at."""
    try:
        listening(host, port).close()
        return True
    except UserError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise a UserError if that is not possible."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(f"there is no address {host} here; try --host 127.0.0.1") from error
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)  # clients wait while models are loaded, instead of being refused
    except OSError as error:
        sock.close()
        raise UserError(f"{host} port {port} cannot be listened at ({error.strerror}); try another --port") from error
    return sock


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
