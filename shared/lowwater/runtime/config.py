"""Settings: one YAML file for the fleet, overridden by `LOWWATER_` variables, in which `__` separates levels.

LOWWATER_KAFKA__BOOTSTRAP_SERVERS=broker:9092
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from lowwater.codec.rules import Mask
from lowwater.errors import ConfigError
from lowwater.runtime.secrets import check_reference

MEBIBYTE = 1 << 20

T = TypeVar("T")


def _name(value: str) -> str:
    # names become parts of topic names and of transaction ids, which `/` and `.` separate
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", value):
        raise ValueError(
            "a name has lower-case letters, digits, - and _, at most 63 characters, and begins with a letter or digit"
        )
    return value


Name = Annotated[str, AfterValidator(_name)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaConfig(Model):
    bootstrap_servers: str = "localhost:9092"
    replication: int = Field(default=1, ge=1, description="replicas of each topic that lowwater creates")
    min_insync_replicas: int = Field(default=1, ge=1)
    compression: str = "lz4"
    stall_seconds: float = Field(
        default=15.0,
        ge=2,
        description="a client that delivers nothing for this long, although records are queued in it, is replaced",
    )
    client: dict[str, str] = Field(
        default_factory=dict, description="passed to the Kafka client unchanged, such as TLS and SASL settings"
    )

    @model_validator(mode="after")
    def _secrets_are_references(self) -> KafkaConfig:
        for name, value in self.client.items():
            check_reference(name, value)
        return self


class RegistryConfig(Model):
    url: str
    username: str = ""
    password: Annotated[str, AfterValidator(lambda v: check_reference("password", v))] = ""


class BatchConfig(Model):
    """A Kafka transaction is committed when it reaches one of these limits."""

    bytes_max: int = Field(default=16 * MEBIBYTE, ge=1024)
    count_max: int = Field(default=200_000, ge=1)
    milliseconds_max: int = Field(default=20, ge=1)


class ColumnsConfig(Model):
    drop: list[str] = []
    mask: dict[str, Mask] = {}
    hash_key: Annotated[str, AfterValidator(lambda v: check_reference("hash_key", v))] = ""


class HttpConfig(Model):
    """Where one service serves health, metrics and status. Port 0: any free port."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


class SourceConfig(Model):
    kind: str
    config: dict[str, Any] = Field(default_factory=dict, description="settings of the source kind")
    partitions: int = Field(default=4, ge=1, description="of the changes topic; cannot be changed once it exists")
    batch: BatchConfig = BatchConfig()
    columns: ColumnsConfig = ColumnsConfig()
    mark_seconds: float = Field(default=1.0, gt=0, description="an idle source publishes marks at this interval")
    clock_ahead_seconds_max: float = Field(default=5.0, ge=0)
    lead_bytes_max: int = Field(
        default=1024 * MEBIBYTE, ge=1, description="how far a thread may be ahead of the lowest mark"
    )
    http: HttpConfig = HttpConfig()


class LakeConfig(Model):
    """The location of a group's lake, and its maintenance."""

    uri: str = Field(description="a directory, or s3://bucket/prefix, gs://…, az://…")
    options: dict[str, str] = Field(
        default_factory=dict,
        description="passed to the object store unchanged: endpoint, region, access_key_id, secret_access_key, …",
    )
    file_bytes: int = Field(default=128 * MEBIBYTE, ge=1024, description="target size of a file")
    grace_hours: float = Field(default=24.0, ge=0, description="unused files are deleted after this time")
    compact_seconds: float = Field(default=300.0, description="small files are merged at this interval; below 0 never")
    retention_hours: float = Field(default=-1.0, description="history older than this is folded; below 0: never")

    @model_validator(mode="after")
    def _secrets_are_references(self) -> LakeConfig:
        for name, value in self.options.items():
            check_reference(name, value)
        return self


class LandConfig(Model):
    """How Spark lands the ordered topic."""

    trigger_seconds: float = Field(default=1.0, gt=0, description="minimum time between the starts of two landings")
    records_max: int = Field(default=4_000_000, ge=1, description="maximum number of Kafka records in one landing")
    spark: dict[str, str] = Field(default_factory=dict, description="passed to Spark unchanged: master, memory, …")
    checkpoint_directory: str | None = Field(default=None, description="of Spark; may be deleted at any time")
    http: HttpConfig = HttpConfig()


class GroupSettings(Model):
    """The settings of a group, without its sources."""

    memory_bytes_max: int = Field(default=64 * MEBIBYTE, ge=65536, description="buffers beyond this spill to disk")
    spool_bytes_max: int = Field(default=20 * 1024 * MEBIBYTE, ge=1, description="beyond this reading is paused")
    spool_directory: Path | None = None
    release_bytes_max: int = Field(default=16 * MEBIBYTE, ge=1024, description="of one Kafka transaction")
    progress_seconds: float = Field(
        default=60.0, gt=0, description="progress is written at this interval while nothing is released"
    )
    delete_seconds: float = Field(default=10.0, gt=0, description="released changes are deleted at this interval")
    retention_hours: float = Field(default=168.0, description="of the ordered topic; below 0: unlimited")
    hold_alarm_seconds: float = Field(default=60.0, gt=0, description="a watermark held this long raises an alarm")
    http: HttpConfig = HttpConfig()
    lake: LakeConfig | None = None
    land: LandConfig = LandConfig()


class GroupConfig(GroupSettings):
    sources: list[Name] = Field(min_length=1)


class Role(StrEnum):
    VIEW = "view"
    OPERATE = "operate"


class TokenConfig(Model):
    """A token for the API and the role of its holder."""

    name: str = Field(min_length=1, description="name of the holder, logged with each of their actions")
    role: Role = Role.VIEW
    token: Annotated[str, AfterValidator(lambda v: check_reference("token", v))] = Field(
        min_length=1, description="a reference: ${env:NAME} or ${file:/path}"
    )


class ControlConfig(Model):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    tokens: list[TokenConfig] = Field(default=[], description="required unless `host` is a loopback address")
    body_bytes_max: int = Field(default=1 * MEBIBYTE, ge=1024, description="of one request")
    requests_per_second: float = Field(
        default=50.0, gt=0, description="of one client; bursts of up to ten seconds' worth are allowed"
    )


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="LOWWATER_", env_nested_delimiter="__", extra="forbid")

    kafka: KafkaConfig = KafkaConfig()
    schema_registry: RegistryConfig | None = None
    sources: dict[Name, SourceConfig] = {}
    groups: dict[Name, GroupConfig] = {}
    control: ControlConfig = ControlConfig()
    log_format: str = "json"
    log_level: str = "info"
    state_directory: Path = Path(".lowwater")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `init_settings` are from the file, which the environment overrides
        return env_settings, init_settings

    @model_validator(mode="after")
    def _groups_name_sources(self) -> Settings:
        taken: dict[str, str] = {}
        for group, config in self.groups.items():
            for source in config.sources:
                if source not in self.sources:
                    raise ValueError(f"group {group} names source {source}, which is not under `sources`")
                if taken.setdefault(source, group) != group:
                    # a merger deletes the changes that it has released: a second merger would miss them
                    raise ValueError(f"source {source} is in the groups {taken[source]} and {group}: it can be in one")
        return self

    def source(self, name: str) -> SourceConfig:
        return _get(self.sources, name, "source")

    def group(self, name: str) -> GroupConfig:
        return _get(self.groups, name, "group")


def _get(where: dict[str, T], name: str, what: str) -> T:
    if name not in where:
        known = ", ".join(sorted(where)) or "none"
        raise ConfigError(f"there is no {what} {name!r} in the config", hint=f"known: {known}")
    return where[name]


def _where(error: Exception) -> str:
    """Line and column of a YAML error, without the text there: it may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    return f": line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', '')}" if mark else ""


def load(path: Path | str | None = None) -> Settings:
    """Settings from a file and the environment. The file is `path`, else `$LOWWATER_CONFIG`, else none."""
    path = path or os.environ.get("LOWWATER_CONFIG")
    data: Any = {}
    if path is not None:
        try:
            data = yaml.safe_load(Path(path).read_text()) or {}
        except OSError as error:
            raise ConfigError(f"config {path}: {error.strerror}", hint="give the path with --config") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"config {path} is not YAML{_where(error)}") from None
        if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
            raise ConfigError(f"config {path} must be a mapping", hint="begin with `kafka:`, `sources:`, `groups:`")
    try:
        return Settings(**data)
    except SettingsError as error:
        raise ConfigError(f"environment: {error}", hint="a mapping is JSON, or one variable for each value") from None
    except ValidationError as error:
        # the message does not contain the input: it may contain a secret
        lines = [f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']}" for e in error.errors(include_input=False)]
        raise ConfigError(f"config {path or '(environment)'}: " + "; ".join(lines)) from None
