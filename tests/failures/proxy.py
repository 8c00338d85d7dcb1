"""A TCP proxy in front of a broker that delays the end of a Kafka transaction and lets it arrive late."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

END_TXN = 26


@dataclass
class Delay:
    """What to do with the ends of one transactional id's transactions."""

    transactional_id: bytes
    #: the ends to delay, counted from 1
    numbers: frozenset[int]
    #: how long the delayed copy is on its way
    seconds: float
    seen: int = 0
    #: error codes with which the broker answered the late copies
    answers: list[int] = field(default_factory=list)


class DelayingProxy:
    """Forwards everything, but for the transaction ends that it delays.

    A delayed end is kept and its connection is cut, so that the client sends it once more on a new one, which is
    forwarded at once. The kept copy arrives later: in the middle of the next transaction.
    """

    def __init__(self, port: int, broker_port: int, delays: list[Delay]) -> None:
        self._broker_port = broker_port
        self._delays = delays
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = [self._listener]
        self._late: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for thread in self._late:
            thread.join(10)
        for open_ in self._sockets:
            open_.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
            self._sockets += (client, broker)
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=_copy, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            while (frame := _frame(client)) is not None:
                delay = self._delay_of(frame)
                if delay is not None:
                    late = threading.Thread(target=self._deliver, args=(delay, frame), daemon=True)
                    self._late.append(late)
                    late.start()
                    break
                broker.sendall(frame)
        except OSError:
            pass  # either side hung up: so does the other
        _hang_up(client)
        _hang_up(broker)

    def _delay_of(self, frame: bytes) -> Delay | None:
        if struct.unpack_from(">h", frame, 4)[0] != END_TXN:
            return None
        with self._lock:
            for delay in self._delays:
                if delay.transactional_id in frame:
                    delay.seen += 1
                    return delay if delay.seen in delay.numbers else None
        return None

    def _deliver(self, delay: Delay, frame: bytes) -> None:
        time.sleep(delay.seconds)
        with socket.create_connection(("127.0.0.1", self._broker_port)) as broker:
            broker.sendall(frame)
            answer = _frame(broker)
        version = struct.unpack_from(">h", frame, 6)[0]
        if answer is not None:
            # size, correlation id, tagged fields from version 3 on, throttle time, error
            at = 4 + 4 + (1 if version >= 3 else 0) + 4
            delay.answers.append(struct.unpack_from(">h", answer, at)[0])


def _frame(source: socket.socket) -> bytes | None:
    head = _exactly(source, 4)
    if head is None:
        return None
    body = _exactly(source, struct.unpack(">i", head)[0])
    return None if body is None else head + body


def _exactly(source: socket.socket, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        more = source.recv(min(1 << 20, size - len(parts)))
        if not more:
            return None
        parts += more
    return parts


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass  # either side hung up: so does the other
    _hang_up(source)
    _hang_up(target)


def _hang_up(open_: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be gone already
        open_.shutdown(socket.SHUT_RDWR)
    open_.close()


class SwallowingProxy:
    """Forwards everything, until `swallow`: from then on the connections that are open stay open and carry nothing.

    That is how a client sees a broker whose answers never come, and how one looks whose own handle hangs: a new client
    gets through at once. `stop` and `go` hold all connections, also new ones.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self._going = threading.Event()
        self._going.set()
        self._swallowed = 0
        self._made = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._swallowed = self._made

    def stop(self) -> None:
        self._going.clear()

    def go(self) -> None:
        self._going.set()

    def close(self) -> None:
        self._going.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._made += 1
            threading.Thread(target=self._connect, args=(client, self._made), daemon=True).start()

    def _connect(self, client: socket.socket, number: int) -> None:
        self._going.wait()
        try:
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
        except OSError:
            client.close()
            return
        for source, target in ((client, broker), (broker, client)):
            threading.Thread(target=self._carry, args=(source, target, number), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, number: int) -> None:
        try:
            while data := source.recv(1 << 16):
                self._going.wait()
                if number > self._swallowed:
                    target.sendall(data)
        except OSError:
            pass  # either side hung up: so does the other
        _hang_up(source)
        _hang_up(target)
