"""Reads the ordered topic with nothing of lowwater: plain `confluent_kafka` and its stock Avro deserializer.

    pip install 'confluent-kafka[avro,schemaregistry]'
    python examples/consumer.py --bootstrap-servers localhost:9092 --registry http://localhost:8080 --group bank

Transactions arrive whole and in one order. The key is {gsn, seq}; the value is a table's change, and the last
record of a transaction is its Commit (or Skipped, where an operator passed one over). `isolation.level` must be
read_committed: with it, a part of a transaction is never seen.
"""

from __future__ import annotations

import argparse
import json
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--registry", default="http://localhost:8080", help="lowwater's control API, or a registry")
    parser.add_argument("--group", default="bank", help="the lowwater group whose order to read")
    parser.add_argument("--from-offset", type=int, default=0)
    parser.add_argument("--max", type=int, default=0, help="stop after this many transactions (0: never)")
    parser.add_argument("--idle-seconds", type=float, default=0, help="stop after this long without news (0: never)")
    arguments = parser.parse_args()

    topic = f"lowwater.{arguments.group}.transactions"
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": arguments.registry}), return_record_name=True)
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap_servers,
            "group.id": "example",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, arguments.from_offset)])
    changes: list[dict[str, object]] = []
    seen = 0
    news = time.monotonic()
    while not arguments.max or seen < arguments.max:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            error = message.error() if message is not None else None
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise SystemExit(f"{topic}: {error}")
            if arguments.idle_seconds and time.monotonic() - news > arguments.idle_seconds:
                break
            continue
        news = time.monotonic()
        key = deserialize(message.key(), SerializationContext(topic, MessageField.KEY))
        value = deserialize(message.value(), SerializationContext(topic, MessageField.VALUE))
        if "changes" in value or "reason" in value:  # Commit or Skipped: the transaction is whole
            seen += 1
            state = "skipped" if "reason" in value else f"{len(changes)} changes"
            line = {"gsn": key["gsn"], "source": value["source"], "txid": value["txid"], "state": state}
            print(json.dumps(line), flush=True)
            changes = []
        else:
            changes.append(value)
    consumer.close()


if __name__ == "__main__":
    main()
