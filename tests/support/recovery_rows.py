"""What a kill at a step leaves behind in Kafka, for the recovery rows of seed document 001 on real servers."""

from __future__ import annotations

import signal
from collections import Counter

from lowwater.kafka.producer import TransactionalProducer
from lowwater.records.codec import decode_commit
from lowwater.records.ids import transaction_id
from lowwater.records.types import Commit, InProgress, Position
from tests.support.harness import Fleet, wait_until

KILLED = -signal.SIGKILL
#: so that some transactions make a batch, and one of this many rows is larger than several
BATCH = {"count_max": 50, "milliseconds_max": 10}
LARGE = 220


class Published:
    """The changes topic of a fleet's source. There is no merger, so nothing is deleted from it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.source = fleet.sources[0]

    def commits(self) -> list[Commit]:
        """In their order."""
        codec = self.fleet.codec
        values = [value for _, _, value in self.fleet.changes() if codec.record_type(value) is Commit]
        return sorted(map(decode_commit, values), key=lambda commit: commit.order)

    def wait_for(self, transactions: int) -> list[Commit]:
        """Each of them once: none is lost, none is there twice."""
        wait_until(
            f"{transactions} commits; {self.fleet.log_tails()}", lambda: len(self.commits()) >= transactions
        )  # fmt: skip
        found = self.commits()
        assert set(Counter(commit.txid for commit in found).values()) == {1}
        return found

    def records(self, position: Position, part: InProgress) -> list[bytes]:
        """All that was published under this transaction's id."""
        key = self.fleet.codec.key(
            transaction_id(self.source, position.incarnation, position.generation, part.thread, part.txid)
        )
        return [value for _, found, value in self.fleet.changes() if found == key]

    def fence(self) -> None:
        """As a successor does first: it ends what was left open, and only then can the topics be read to their end."""
        producer = TransactionalProducer(self.fleet.settings.kafka, f"lowwater.{self.source}")
        producer.init()
        producer.close()

    def kill_at(self, point: str) -> Position:
        """The position that is left. The first pass may be that of a mark alone; the second has records."""
        self.fleet.change_source(mark_seconds=3600)
        service = self.fleet.extractor(LOWWATER_FAIL_AT=f"{point}:2")
        assert service.wait(60) == KILLED, self.fleet.log_tails()
        self.fleet.change_source(mark_seconds=0.2)
        self.fence()
        left = self.fleet.position()
        assert self.commits()[-1].order == left.threads[0].published, "position and data disagree"
        return left
