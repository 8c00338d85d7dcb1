"""The Spark session, and the Kafka client settings converted for Spark's Java client."""

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
#: written by `class_archive.py`; it halves the startup time
ARCHIVE = Path(sys.prefix) / "spark.jsa"

_JAVA = " ".join(
    (
        # by default the JVM's Arrow checks the bounds of every value that it writes
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
        # Avro's fast reader is off by default in from_avro
        "-Dorg.apache.avro.fastread=true",
        # the code that Spark generates for many tables is long, and would be interpreted
        "-XX:-DontCompileHugeMethods",
        # a landing allocates short-lived bytes, and pauses of milliseconds do not matter
        "-XX:+UseParallelGC",
    )
)
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    # a worker that crashes writes its stack trace
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # a compaction must not delay landings that run at the same time
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    # keep the compiled decoder of every table version
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
    """The jars in the directory `LOWWATER_SPARK_JARS` (set in an image), or in `.jars/spark` of a clone."""
    named = os.environ.get(JARS_VARIABLE)
    places = [Path(named)] if named else [p / ".jars/spark" for p in (Path.cwd(), *Path(__file__).resolve().parents)]
    for place in places:
        found = sorted(place.glob("*.jar"))
        if found:
            return ",".join(map(str, found))
    raise ConfigError("Spark's Kafka and Avro jars were not found", hint=f"`make jars`, or set {JARS_VARIABLE}")


def spark_session(name: str, config: LandConfig) -> SparkSession:
    # the workers run the same Python, with the packages of this environment
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
    """The settings of `kafka.client` converted for the Java client.

    Security settings are converted, or refused with ConfigError, never dropped. Other settings are specific to
    librdkafka and are left out; settings of Spark's Java client belong in `land.spark`, as `kafka.<name>`.
    """
    wanted = {_NAMES.get(name, name): resolve(value) for name, value in kafka.client.items()}
    found: dict[str, str] = {}
    user, password = wanted.pop("sasl.username", None), wanted.pop("sasl.password", None)
    if user is not None:
        module = _LOGIN.get(wanted.get("sasl.mechanism", "PLAIN").upper())
        if module is None:
            raise ConfigError(
                f"sasl.mechanism {wanted.get('sasl.mechanism')} with a user name is not supported by Spark's client",
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
        # the records of a task are in the topic already: it waits only for the end marker of a Kafka transaction
        "kafka.fetch.max.wait.ms": "10",
    }
    own = {name: value for name, value in land.spark.items() if name.startswith("kafka.")}
    return {**options, **{f"kafka.{name}": value for name, value in java_settings(kafka).items()}, **own}
