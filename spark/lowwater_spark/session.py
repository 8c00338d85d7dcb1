"""The Spark session, and Kafka's settings in the words of Spark's own client."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from lowwater.errors import ConfigError
from lowwater.runtime import class_archive
from lowwater.runtime.config import KafkaConfig, LandConfig
from lowwater.runtime.secrets import resolve

JARS_VARIABLE = "LOWWATER_SPARK_JARS"
#: what `class_archive.py` makes: a start that has it costs half
ARCHIVE = Path(sys.prefix) / "spark.jsa"

_JAVA = " ".join(
    (
        # the JVM's Arrow checks the bounds of every value that it writes unless it is told not to
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
        # Avro's own quicker reader; from_avro uses it only where it is told to
        "-Dorg.apache.avro.fastread=true",
        # the code that Spark writes for many tables is long, and would be interpreted
        "-XX:-DontCompileHugeMethods",
        # a landing is short-lived bytes and no deadline in milliseconds
        "-XX:+UseParallelGC",
    )
)
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    # a worker that dies says where it was
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # a compaction must not hold up the landings beside it
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    # a task's records are bytes until Arrow has them: keep what was compiled for a table version
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.minBatchesToRetain": "2",
    # one job decodes all tables: beyond a hundred columns Spark would fall back to slower code
    "spark.sql.codegen.maxFields": "100000",
    "spark.driver.extraJavaOptions": f"{_JAVA} -Dlog4j2.level=warn",
    "spark.executor.extraJavaOptions": _JAVA,
}


def _jars() -> str:
    """In an image they lie where `LOWWATER_SPARK_JARS` says, in a clone in `.jars/spark`."""
    named = os.environ.get(JARS_VARIABLE)
    places = [Path(named)] if named else [p / ".jars/spark" for p in (Path.cwd(), *Path(__file__).resolve().parents)]
    for place in places:
        found = sorted(place.glob("*.jar"))
        if found:
            return ",".join(map(str, found))
    raise ConfigError("Spark's Kafka and Avro jars are not here", hint=f"`make jars`, or set {JARS_VARIABLE}")


def spark_session(name: str, config: LandConfig) -> SparkSession:
    # the workers run this very Python, with the packages of this environment
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "LOWWATER_FAIL_AT" in os.environ:
        # a fail point in a task kills the application, not only the worker that the task runs in
        os.environ["LOWWATER_FAIL_PID"] = str(os.getpid())
    builder = SparkSession.builder.appName(name).config("spark.jars", _jars())
    settings = {**_DEFAULTS, **config.spark}
    java = [settings["spark.driver.extraJavaOptions"], *class_archive.options(ARCHIVE)]
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    for setting, value in settings.items():
        if not setting.startswith("kafka."):
            builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


#: librdkafka's name → the Java client's, where they differ
_NAMES = {"sasl.mechanisms": "sasl.mechanism"}
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_KEPT = {
    "security.protocol",
    "sasl.mechanism",
    "client.id",
    "client.rack",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
}
_SECURITY = ("sasl.", "ssl.", "security.")


def java_settings(kafka: KafkaConfig) -> dict[str, str]:
    """The operator's client settings for the Java client.

    Those of security are translated, or refused: never dropped. Others tune librdkafka and mean nothing to Java;
    `land.spark` takes what tunes Spark's own client, as `kafka.<name>`.
    """
    wanted = {_NAMES.get(name, name): resolve(value) for name, value in kafka.client.items()}
    found: dict[str, str] = {}
    user, password = wanted.pop("sasl.username", None), wanted.pop("sasl.password", None)
    if user is not None:
        module = _LOGIN.get(wanted.get("sasl.mechanism", "PLAIN").upper())
        if module is None:
            raise ConfigError(
                f"sasl.mechanism {wanted.get('sasl.mechanism')} with a user name is not known to Spark's client",
                hint=f"one of {', '.join(_LOGIN)}",
            )
        found["sasl.jaas.config"] = f"{module} required username={_quoted(user)} password={_quoted(password or '')};"
    if "ssl.ca.location" in wanted:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": wanted.pop("ssl.ca.location")}
    certificate, key = wanted.pop("ssl.certificate.location", None), wanted.pop("ssl.key.location", None)
    if certificate and key:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(certificate).read_text(),
            "ssl.keystore.key": Path(key).read_text(),
        }
    for name in list(wanted):
        if name in _KEPT:
            found[name] = wanted.pop(name)
    left = sorted(name for name in wanted if name.startswith(_SECURITY))
    if left:
        raise ConfigError(
            f"kafka.client settings that have no counterpart in Spark's client: {', '.join(left)}",
            hint="use sasl.username and sasl.password, ssl.ca.location, ssl.certificate.location, ssl.key.location",
        )
    return found


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def kafka_options(kafka: KafkaConfig, land: LandConfig, topic: str) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": "25000",
        "kafka.max.partition.fetch.bytes": str(8 << 20),
        # what a task is to read is there: it only ever waits for the marker that ends a Kafka transaction
        "kafka.fetch.max.wait.ms": "10",
    }
    own = {name: value for name, value in land.spark.items() if name.startswith("kafka.")}
    return {**options, **{f"kafka.{name}": value for name, value in java_settings(kafka).items()}, **own}
