"""Random events of a cluster by a seed, for tests and demos of rare cases."""

from __future__ import annotations

import random
from collections.abc import Callable

from lowwater_devkit.simulated_rac.cluster import Cluster, Transaction
from lowwater_devkit.simulated_rac.workload import ACCOUNTS

_TABLE = ACCOUNTS.full_name


class Script:
    """`step()` performs one random event that is possible now; `finish()` ends all open transactions."""

    def __init__(self, cluster: Cluster, seed: int, *, threads_max: int = 4, open_max: int = 8) -> None:
        self.cluster = cluster
        self._random = random.Random(seed)
        self._threads_max = threads_max
        self._open_max = open_max
        self._rows = 0
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (20, self._begin),
            (50, self._change),
            (6, self._rollback_to),
            (20, self._end),
            (4, self._end_together),
            (12, self._prepare),
            (10, self._resolve),
            (8, self._flush),
            (8, self._heartbeat),
            (5, self._switch),
            (2, self._close_or_open),
            (4, self._stop_or_return),
            (1, self._add),
            (2, lambda: self.cluster.delete_acknowledged()),
        ]

    def step(self) -> None:
        weights = [weight for weight, _ in self._steps]
        self._random.choices(self._steps, weights)[0][1]()

    def finish(self) -> None:
        """Open all threads, end all transactions, and write heartbeats so that all marks pass the last commit."""
        cluster = self.cluster
        for number, instance in cluster.instances.items():
            if instance.state == "closed":
                cluster.open_thread(number)
            elif not instance.alive:
                cluster.restart(number)
        for transaction in list(cluster.open.values()):
            if transaction.closing is None:
                for thread in transaction.doomed_by or {transaction.home}:
                    if transaction.closing is None:
                        cluster.rollback(transaction, thread=thread)
        cluster.flush()
        for _ in range(2):
            cluster.heartbeat()

    # --- candidates

    def _alive(self) -> list[int]:
        return [number for number, instance in self.cluster.instances.items() if instance.alive]

    def _usable(self, *, prepared: bool = False) -> list[Transaction]:
        """Open transactions whose instances all run."""
        alive = set(self._alive())
        return [
            txn
            for txn in self.cluster.open.values()
            if txn.closing is None
            and txn.prepared is prepared
            and not txn.doomed_by
            and {txn.home, *txn.threads} <= alive
        ]

    # --- transactions

    def _begin(self) -> None:
        rng, alive = self._random, self._alive()
        if alive and len(self.cluster.open) < self._open_max:
            kind = rng.random()
            self.cluster.begin(rng.choice(alive), system=kind < 0.1, xa=kind > 0.75)

    def _change(self) -> None:
        rng, usable = self._random, self._usable()
        if not usable:
            return
        txn = rng.choice(usable)
        thread = rng.choice(self._alive()) if txn.xa else txn.home
        for _ in range(rng.randrange(1, 6)):
            self._rows += 1
            old = (self._rows, thread, rng.randrange(1 << 40), self._rows)
            new = (self._rows, thread, rng.randrange(1 << 40), self._rows + 1)
            kind = rng.randrange(3)
            if kind == 0:
                self.cluster.insert(txn, _TABLE, new, thread)
            elif kind == 1:
                self.cluster.update(txn, _TABLE, old, new, thread)
            else:
                self.cluster.delete(txn, _TABLE, old, thread)

    def _rollback_to(self) -> None:
        usable = [txn for txn in self._usable() if txn.changes]
        if usable:
            txn = self._random.choice(usable)
            self.cluster.rollback_to(txn, self._random.randrange(len(txn.changes)))

    def _end(self) -> None:
        usable = self._usable()
        if usable:
            txn, flush = self._random.choice(usable), self._random.random() < 0.5
            if self._random.random() < 0.8:
                self.cluster.commit(txn, flush=flush)
            else:
                self.cluster.rollback(txn, flush=flush)

    def _end_together(self) -> None:
        """Equal commit SCNs on several threads; also of transactions that are in several threads."""
        by_home = {txn.home: txn for txn in self._usable()}
        if len(by_home) > 1:
            self.cluster.commit_together(by_home.values())

    def _prepare(self) -> None:
        usable = [txn for txn in self._usable() if txn.xa]
        if usable:
            self.cluster.prepare(self._random.choice(usable))

    def _resolve(self) -> None:
        """End a prepared transaction, by its own instance or another one."""
        cluster, alive = self.cluster, self._alive()
        doubtful = [
            txn
            for txn in cluster.open.values()
            if txn.prepared and txn.closing is None and not self._stopped() & {txn.home, *txn.threads}
        ]
        if doubtful and alive:
            txn = self._random.choice(doubtful)
            own = cluster.instances[txn.home].alive and self._random.random() < 0.6
            thread = txn.home if own else self._random.choice(alive)
            if self._random.random() < 0.7:
                cluster.commit(txn, thread=thread)
            else:
                cluster.rollback(txn, thread=thread)

    def _stopped(self) -> set[int]:
        return {n for n, each in self.cluster.instances.items() if each.state == "open" and not each.alive}

    # --- logs and instances

    def _flush(self) -> None:
        if alive := self._alive():
            self.cluster.flush(self._random.choice(alive))

    def _heartbeat(self) -> None:
        if alive := self._alive():
            self.cluster.heartbeat(self._random.choice(alive))

    def _switch(self) -> None:
        if alive := self._alive():
            self.cluster.switch(self._random.choice(alive))

    def _close_or_open(self) -> None:
        closed = [n for n, each in self.cluster.instances.items() if each.state == "closed"]
        alive = self._alive()
        if closed and self._random.random() < 0.6:
            self.cluster.open_thread(self._random.choice(closed))
        elif len(alive) > 1:
            self.cluster.close_thread(self._random.choice(alive))

    def _stop_or_return(self) -> None:
        rng, stopped, alive = self._random, sorted(self._stopped()), self._alive()
        if stopped and (rng.random() < 0.7 or len(alive) < 2):
            thread = rng.choice(stopped)
            if alive and rng.random() < 0.5:
                self.cluster.recover(thread, by=rng.choice(alive))
            else:
                self.cluster.restart(thread)
        elif len(alive) > 1:
            self.cluster.stop(rng.choice(alive), torn=rng.choice([0, 0, 7, 60]))

    def _add(self) -> None:
        number = len(self.cluster.instances) + 1
        if number <= self._threads_max:
            self.cluster.add_thread(number, opened=self._random.random() < 0.7)
