"""The bank workload: transfers between accounts, whose total balance is constant.

A transfer updates two accounts (with all columns before and after) and inserts one row into TRANSFERS. At every commit
the sum of BALANCE_CENTS is unchanged, and an account's balance is its initial balance plus all transfers in, minus all
transfers out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from lowwater.codec.table import INT32, INT64, TIMESTAMPTZ, Column, TableSchema, decimal
from lowwater_devkit.simulated_rac.cluster import Cluster, Transaction

ACCOUNTS = TableSchema(
    source="",
    namespace="BANK",
    table="ACCOUNTS",
    version=1,
    columns=(
        Column("ID", INT64, nullable=False),
        Column("BRANCH", INT32, nullable=False),
        Column("BALANCE_CENTS", INT64, nullable=False),
        Column("UPDATED", TIMESTAMPTZ, nullable=False),
    ),
    key=("ID",),
)
TRANSFERS = TableSchema(
    source="",
    namespace="BANK",
    table="TRANSFERS",
    version=1,
    columns=(
        Column("ID", INT64, nullable=False),
        Column("SOURCE_ACCOUNT", INT64, nullable=False),
        Column("TARGET_ACCOUNT", INT64, nullable=False),
        Column("AMOUNT_CENTS", INT64, nullable=False),
        Column("RATE", decimal(6, 4), nullable=False),
        Column("AT", TIMESTAMPTZ, nullable=False),
    ),
    key=("ID",),
)
BANK = (ACCOUNTS, TRANSFERS)

_ACCOUNTS = ACCOUNTS.full_name
_TRANSFERS = TRANSFERS.full_name
_RATES = [Decimal(rate).scaleb(-4) for rate in range(10_000, 10_100)]


@dataclass(frozen=True, slots=True)
class BankOptions:
    accounts: int = 1000
    #: 0: no end
    transactions: int = 1000
    #: transfers in one transaction
    transfers: int = 1
    first_balance_cents: int = 1_000_000
    #: number of transactions that are open at the same time
    sessions: int = 8
    #: accounts per transaction when the accounts are created
    chunk: int = 1000
    #: shares of all transactions
    rollbacks: float = 0.0
    savepoints: float = 0.0
    xa: float = 0.0
    seed: int = 1


@dataclass(slots=True)
class _Session:
    transaction: Transaction
    #: rows that it has locked → their values before
    locked: dict[int, tuple[int, int]]
    transfers: int


class Bank:
    """The bank workload on a cluster, in steps; each step is a small part of one session's work."""

    def __init__(self, cluster: Cluster, options: BankOptions) -> None:
        self.cluster = cluster
        self.options = options
        self._random = random.Random(options.seed)
        #: balance and time of the last change, by account, including changes of open sessions
        self._accounts: dict[int, tuple[int, int]] = {}
        self._locked: set[int] = set()
        self._sessions: list[_Session] = []
        self._transfers = 0
        #: threads without workload
        self.idle: set[int] = set()
        self.started = 0
        self.committed = 0
        self.changes = 0

    @property
    def total_cents(self) -> int:
        return self.options.accounts * self.options.first_balance_cents

    def _threads(self) -> list[int]:
        instances = self.cluster.instances.items()
        return [number for number, instance in instances if instance.alive and number not in self.idle]

    def open_accounts(self) -> None:
        """Create all accounts, `chunk` of them per transaction."""
        options, cluster = self.options, self.cluster
        for first in range(0, options.accounts, options.chunk):
            transaction = cluster.begin(self._random.choice(self._threads()))
            now = cluster.now_us()
            for number in range(first, min(first + options.chunk, options.accounts)):
                row = (number, number % 16, options.first_balance_cents, now)
                cluster.insert(transaction, _ACCOUNTS, row)
                self._accounts[number] = (options.first_balance_cents, now)
                self.changes += 1
            cluster.commit(transaction)

    def steps(self, *, flush: bool = True) -> Iterator[None]:
        """One piece of work per step, until all transactions are done."""
        options = self.options
        if not self._accounts:
            self.open_accounts()
        while self._sessions or self.started < (options.transactions or self.started + 1):
            more = not options.transactions or self.started < options.transactions
            if more and self._threads() and self._running() < options.sessions:
                self._start()
            if self._sessions:
                self._work(self._random.choice(self._sessions), flush)
            yield

    def _running(self) -> int:
        """The number of sessions; at the maximum, only of those whose instances all run."""
        if len(self._sessions) < self.options.sessions:
            return len(self._sessions)
        return sum(map(self._alive, self._sessions))

    def _start(self) -> None:
        rng = self._random
        thread = rng.choice(self._threads())
        xa = self.options.xa > 0 and rng.random() < self.options.xa
        self._sessions.append(_Session(self.cluster.begin(thread, xa=xa), {}, self.options.transfers))
        self.started += 1

    def _work(self, session: _Session, flush: bool) -> None:
        if session.transaction.xid not in self.cluster.open:
            # its instance crashed, and it was rolled back
            self._end(session, keep=False)
        elif not self._alive(session) or session.transaction.doomed_by:
            return
        elif session.transfers:
            session.transfers -= 1
            undone = self.options.savepoints > 0 and self._random.random() < self.options.savepoints
            self._transfer(session, undone)
        elif self.options.rollbacks > 0 and self._random.random() < self.options.rollbacks:
            self.cluster.rollback(session.transaction, flush=flush)
            self._end(session, keep=False)
        else:
            if session.transaction.xa:
                self.cluster.prepare(session.transaction)
            self.cluster.commit(session.transaction, flush=flush)
            self.committed += 1
            self._end(session, keep=True)

    def _alive(self, session: _Session) -> bool:
        threads = {session.transaction.home, *session.transaction.threads}
        return all(self.cluster.instances[number].alive for number in threads)

    def _end(self, session: _Session, keep: bool) -> None:
        self._sessions.remove(session)
        self._locked.difference_update(session.locked)
        if not keep:
            self._accounts.update(session.locked)

    def _transfer(self, session: _Session, undone: bool) -> None:
        cluster, rng, transaction = self.cluster, self._random, session.transaction
        pair = self._lock_two(session)
        if pair is None:
            return
        amount = rng.randrange(1, 10_000)
        now = cluster.now_us()
        savepoint = cluster.savepoint(transaction)
        before = {number: self._accounts[number] for number in pair}
        for number, by in zip(pair, (-amount, amount), strict=True):
            balance, updated = self._accounts[number]
            old = (number, number % 16, balance, updated)
            new = (number, number % 16, balance + by, now)
            # all in one thread: each branch is a transaction of its own in the log, and the sum must be right at each
            cluster.update(transaction, _ACCOUNTS, old, new)
            self._accounts[number] = (balance + by, now)
        self._transfers += 1
        row = (self._transfers, pair[0], pair[1], amount, rng.choice(_RATES), now)
        cluster.insert(transaction, _TRANSFERS, row)
        self.changes += 3
        if undone:
            cluster.rollback_to(transaction, savepoint)
            self._accounts.update(before)

    def _lock_two(self, session: _Session) -> tuple[int, int] | None:
        """Lock two accounts that no other session has changed; None: not found in 20 tries."""
        pair: list[int] = []
        for _ in range(20):
            number = self._random.randrange(self.options.accounts)
            if number not in pair and (number in session.locked or number not in self._locked):
                pair.append(number)
            if len(pair) == 2:
                for locked in pair:
                    session.locked.setdefault(locked, self._accounts[locked])
                self._locked.update(pair)
                return pair[0], pair[1]
        return None
