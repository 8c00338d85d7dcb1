"""Changes a source's position on request, under the source's transactional id: a running extractor is fenced.

`lowwater-extractor --reset` deletes the position: the next session captures the source from scratch, for example with a
new replication slot, and copies its tables again. It does so under the next generation, which is ordered after
everything published before. Published records remain. Changes that the log had in between are captured only as far as
the copies contain them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lowwater.errors import ConfigError, LowwaterError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.records.positions import Order
from lowwater.records.schemas import open_store
from lowwater.records.types import Position, SourceNote
from lowwater.runtime import config
from lowwater.runtime.config import Settings
from lowwater.runtime.service import EXIT_ERROR, EXIT_STOPPED
from lowwater.runtime.times import now_us
from lowwater_extractor.encoders import RegisteredEncoders, column_rules
from lowwater_extractor.publish.publisher import Publisher
from lowwater_extractor.publish.slab_producer import SlabProducer
from lowwater_extractor.session.clock import SourceClock
from lowwater_extractor.sources import open_source


def reset(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lowwater-extractor --reset", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--source", required=True, help="the source, by its name in the config")
    given = parser.parse_args(arguments)
    try:
        said = reset_position(config.load(given.config), given.source)
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-extractor: {error}\n")
        return EXIT_ERROR
    sys.stdout.write(said + "\n")
    return EXIT_STOPPED


def reset_position(settings: Settings, name: str) -> str:
    source = settings.source(name)
    incarnation = open_source(name, source.kind, source.config).incarnation()
    with _own(settings, name) as (publisher, notes):
        if publisher is None:
            return f"{name} has no position yet"
        last = publisher.position
        publisher.reset(incarnation, now_us(), notes)
    threads = ", ".join(f"thread {t.thread} at {t.mark}" for t in last.threads) or "nothing"
    return f"{name}: the position was {threads}; the next start captures from scratch and copies all tables"


def move_position(settings: Settings, name: str, places: Mapping[int, tuple[bytes, Order]]) -> str:
    """Set the resumes of threads, each with the mark that belongs to it. Returns a message for the operator."""
    with _own(settings, name) as (publisher, _):
        known = {} if publisher is None else publisher.marks
        unknown = sorted(set(places) - set(known))
        if publisher is None or unknown:
            raise ConfigError(
                f"{name} has no position of thread {', '.join(map(str, unknown))}",
                source=name,
                hint=f"known: {', '.join(map(str, sorted(known))) or 'none yet: start it first'}",
            )
        publisher.move(places)
    return f"{name}: " + ", ".join(f"thread {thread} continues at {mark}" for thread, (_, mark) in places.items())


@contextmanager
def _own(settings: Settings, name: str) -> Iterator[tuple[Publisher | None, set[str]]]:
    """Yield a publisher at the last position, and the names of its notes; (None, empty) if there is no position."""
    source = settings.source(name)
    admin = Admin(settings.kafka)
    admin.wait_for_broker(10)
    admin.ensure([*topics.shared_topics(), *topics.source_topics(name, source)])
    store = open_store(settings)
    codec = store.record_codec()
    producer = SlabProducer(settings.kafka, f"lowwater.{name}")
    try:
        producer.init()
        messages, _ = read_to_end(settings.kafka, topics.positions(name))
        if not messages:
            yield None, set()
            return
        values = [message.value() or b"" for message in messages]
        last = codec.decode(values[-1], Position)
        encoders = RegisteredEncoders(store, topics.changes(name), column_rules(source.columns))
        clock = SourceClock(last.clock_us, 0)
        publisher = Publisher(producer, codec, encoders, source.batch, source.partitions, last, clock)
        yield publisher, {codec.decode(v, SourceNote).name for v in values if codec.record_type(v) is SourceNote}
    finally:
        producer.close()
