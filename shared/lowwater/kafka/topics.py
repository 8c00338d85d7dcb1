"""All topics: names, settings, writers and readers. Topic names are defined only here.

| topic | written by | read by |
|---|---|---|
| `lowwater.<source>.changes` | extractor | merger |
| `lowwater.<source>.positions` | extractor | extractor, control |
| `lowwater.<source>.chunks` | extractor | spark |
| `lowwater.<group>.transactions` | merger | spark, consumers |
| `lowwater.<group>.progress` | merger | merger, control |
| `lowwater.<group>.ledger` | spark | extractor, control |
| `lowwater.schemas` | extractor, merger, control | all |
| `lowwater.control` | control, fleet | extractor, merger, spark, fleet, control |
| `lowwater.status` | extractor, merger, spark, fleet | control, fleet |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lowwater.runtime.config import MEBIBYTE, GroupConfig, SourceConfig

PREFIX = "lowwater"
SCHEMAS = f"{PREFIX}.schemas"
CONTROL = f"{PREFIX}.control"
STATUS = f"{PREFIX}.status"

#: a row beyond this stops its source
MESSAGE_BYTES_MAX = 16 * MEBIBYTE
#: overhead of Kafka for a record; the limits of broker, topic and client include both
MESSAGE_OVERHEAD_BYTES = MEBIBYTE

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_COMPACTED = {"cleanup.policy": "compact"}
#: published again every second, so older records are not needed; Kafka deletes only closed segments
_PASSING = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    settings: dict[str, str] = field(default_factory=dict)


def _large(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "max.message.bytes": str(MESSAGE_BYTES_MAX + MESSAGE_OVERHEAD_BYTES)}


def changes(source: str) -> str:
    return f"{PREFIX}.{source}.changes"


def positions(source: str) -> str:
    return f"{PREFIX}.{source}.positions"


def chunks(source: str) -> str:
    return f"{PREFIX}.{source}.chunks"


def transactions(group: str) -> str:
    return f"{PREFIX}.{group}.transactions"


def progress(group: str) -> str:
    return f"{PREFIX}.{group}.progress"


def ledger(group: str) -> str:
    return f"{PREFIX}.{group}.ledger"


def land_group(group: str) -> str:
    """The consumer group whose offsets mirror the landings, for standard lag monitoring tools."""
    return f"{PREFIX}.{group}.land"


def shared_topics() -> list[Topic]:
    return [Topic(SCHEMAS, 1, _KEPT), Topic(CONTROL, 1, _KEPT), Topic(STATUS, 1, _PASSING)]


def source_topics(source: str, config: SourceConfig) -> list[Topic]:
    """Changes are retained until the merger has released them; the merger then deletes them."""
    return [
        Topic(changes(source), config.partitions, _large(_KEPT)),
        Topic(positions(source), 1, _COMPACTED),
        # one partition: a copy that replaces another comes after it
        Topic(chunks(source), 1, _KEPT),
    ]


def group_topics(group: str, config: GroupConfig) -> list[Topic]:
    hours = config.retention_hours
    retention = "-1" if hours < 0 else str(int(hours * 3_600_000))
    ordered = _large({"cleanup.policy": "delete", "retention.ms": retention, "retention.bytes": "-1"})
    return [Topic(transactions(group), 1, ordered), Topic(progress(group), 1, _large(_COMPACTED))]


def lake_topics(group: str) -> list[Topic]:
    """The ledger topic. It is retained: it has the whole history of the lake. If lost, it is rebuilt from manifests."""
    return [Topic(ledger(group), 1, _KEPT)]
