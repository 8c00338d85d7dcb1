"""TCP ports of this machine."""

from __future__ import annotations

import random
import socket
from collections import deque

from lowwater.errors import ConfigError

# Below the ephemeral port range of the kernel (Linux: from 32768, macOS: from 49152). A port in that range can be
# assigned to any outgoing connection while its server restarts, even to a client of that server, which is then
# connected to itself.
FREE_PORTS = range(20000, 32000)
#: ports returned recently: the caller may not listen on them yet
_GIVEN: deque[int] = deque(maxlen=2000)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server can listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as servers do: connections of a killed server must not block its port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def is_listening(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def free_port(*, but_not: tuple[int, ...] = ()) -> int:
    """A port that is free now; a different one on each call. Random, so that concurrent test runs rarely collide."""
    for port in random.sample(FREE_PORTS, 200):
        if port not in but_not and port not in _GIVEN and is_free(port):
            _GIVEN.append(port)
            return port
    raise ConfigError(
        f"no free port between {FREE_PORTS.start} and {FREE_PORTS.stop}",
        hint="`ss -ltnp` lists the programs that use them",
    )
