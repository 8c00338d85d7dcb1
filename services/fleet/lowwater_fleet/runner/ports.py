"""TCP ports of this machine."""

from __future__ import annotations

import random
import socket
from collections import deque

from lowwater.errors import ConfigError

# Below the range from which the kernel takes ports for outgoing connections (Linux: from 32768, macOS: from
# 49152). A port of that range can be taken by any client while its server is being restarted, even by the
# client that is trying to reach that server: it then talks to itself.
FREE_PORTS = range(20000, 32000)
#: what this process was given lately: who asked for one may not listen there yet
_GIVEN: deque[int] = deque(maxlen=2000)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as servers do: connections of a server that was killed do not block its port
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
    """A port that is free now, another one each time. Random, so that two test runs at once seldom choose the same."""
    for port in random.sample(FREE_PORTS, 200):
        if port not in but_not and port not in _GIVEN and is_free(port):
            _GIVEN.append(port)
            return port
    raise ConfigError(
        f"no free port between {FREE_PORTS.start} and {FREE_PORTS.stop}", hint="see what holds them: ss -ltnp"
    )
