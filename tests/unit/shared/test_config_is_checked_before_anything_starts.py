"""One YAML file, variables that override it, references in the place of secrets; a mistake is named by its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lowwater.errors import ConfigError
from lowwater.kafka.client import client_settings
from lowwater.runtime import config
from lowwater.runtime.config import KafkaConfig, Settings
from lowwater.runtime.secrets import check_reference, is_secret_name, resolve

FLEET: dict[str, Any] = {
    "kafka": {"bootstrap_servers": "file:9092"},
    "sources": {"rac": {"kind": "simulated_rac", "partitions": 6, "config": {"directory": "/data"}}},
    "groups": {"bank": {"sources": ["rac"]}},
}


def _load(tmp_path: Path, raw: Any = None, **more: Any) -> Settings:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump({**FLEET, **more} if raw is None else raw))
    return config.load(path)


def _refused(tmp_path: Path, raw: Any = None, **more: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, raw, **more)
    return str(refused.value)


# -- file and environment --------------------------------------------------------------------------------


def test_what_the_file_does_not_say_has_a_default(tmp_path: Path) -> None:
    settings = _load(tmp_path)
    assert settings.kafka.bootstrap_servers == "file:9092"
    assert settings.source("rac").partitions == 6
    assert settings.source("rac").mark_seconds == 1.0
    assert settings.group("bank").retention_hours == 168


def test_variables_go_before_the_file_one_level_for_each_pair_of_underscores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWWATER_KAFKA__BOOTSTRAP_SERVERS", "variable:9092")
    monkeypatch.setenv("LOWWATER_SOURCES__RAC__BATCH__COUNT_MAX", "17")
    monkeypatch.setenv("LOWWATER_LOG_LEVEL", "debug")
    settings = _load(tmp_path)
    assert settings.kafka.bootstrap_servers == "variable:9092"
    assert settings.source("rac").batch.count_max == 17
    assert settings.source("rac").partitions == 6, "what the variable does not name stays"
    assert settings.log_level == "debug"


def test_a_variable_names_the_file_if_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(FLEET))
    monkeypatch.setenv("LOWWATER_CONFIG", str(tmp_path / "other.yaml"))
    assert config.load().source("rac").partitions == 6


def test_a_variable_with_a_wrong_value_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWWATER_SOURCES__RAC__PARTITIONS", "many")
    assert "sources.rac.partitions" in _refused(tmp_path)


def test_a_variable_that_is_not_json_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWWATER_SOURCES", "{hunter2")
    said = _refused(tmp_path)
    assert "sources" in said
    assert "hunter2" not in said


# -- mistakes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sorces": {}}, "sorces: Extra inputs are not permitted"),
        ({"kafka": {"bootstrap": "x"}}, "kafka.bootstrap: Extra inputs"),
        ({"groups": {"bank": {"sources": ["cra"]}}}, "group bank names source cra, which is not under `sources`"),
        ({"groups": {"bank": {"sources": []}}}, "groups.bank.sources"),
        ({"sources": {"Rac/1": {"kind": "simulated_rac"}}}, "a name has lower-case letters"),
        ({"sources": {"rac": {}}}, "sources.rac.kind: Field required"),
        ({"sources": {"rac": {"kind": "x", "columns": {"mask": {"A.B.C": "blur"}}}}}, "columns.mask.A.B.C"),
        ({"sources": {"rac": {"kind": "x", "batch": {"count_max": 0}}}}, "sources.rac.batch.count_max"),
    ],
)
def test_a_mistake_is_named_by_its_field(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    assert words in _refused(tmp_path, **more)


@pytest.mark.parametrize("raw", [["a", "list"], "text", {7: 8}])
def test_a_file_that_is_no_mapping_of_names_is_refused(tmp_path: Path, raw: Any) -> None:
    assert "must be a mapping" in _refused(tmp_path, raw)


def test_a_file_that_is_not_yaml_is_refused_by_line_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("kafka:\n  client: {sasl.password: hunter2 ]\n")
    with pytest.raises(ConfigError, match="is not YAML: line 2") as refused:
        config.load(path)
    assert "hunter2" not in str(refused.value)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not YAML"):
        config.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.yaml: No such file"):
        config.load(tmp_path / "nothing.yaml")


def test_a_name_that_is_not_in_the_config_is_refused_with_those_that_are(tmp_path: Path) -> None:
    settings = _load(tmp_path)
    with pytest.raises(ConfigError, match="there is no source 'cra'") as refused:
        settings.source("cra")
    assert refused.value.hint == "known: rac"
    with pytest.raises(ConfigError, match="there is no group 'knab'"):
        settings.group("knab")


# -- secrets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"])
def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path: Path, name: str) -> None:
    said = _refused(tmp_path, kafka={"client": {name: "hunter2"}})
    assert f"{name} holds a secret" in said
    assert "hunter2" not in said


def test_secrets_of_the_registry_and_of_masks_are_references_too(tmp_path: Path) -> None:
    registry = {"url": "http://registry", "username": "me", "password": "hunter2"}
    columns = {"kind": "simulated_rac", "columns": {"hash_key": "hunter2"}}
    for more in ({"schema_registry": registry}, {"sources": {"rac": columns}}):
        said = _refused(tmp_path, **more)
        assert "holds a secret" in said
        assert "hunter2" not in said


def test_a_reference_is_kept_in_the_settings_and_filled_in_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("from the file\n")
    client = {"sasl.password": f"${{file:{tmp_path}/password}}", "sasl.username": "u-${env:TEST_WHO}"}
    settings = _load(tmp_path, kafka={"client": client})
    assert settings.kafka.client == client
    assert "from the file" not in repr(settings)
    monkeypatch.setenv("TEST_WHO", "ada")
    filled = client_settings(settings.kafka)
    assert (filled["sasl.password"], filled["sasl.username"]) == ("from the file", "u-ada")


def test_a_reference_to_nothing_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_NOTHING", raising=False)
    with pytest.raises(ConfigError, match="TEST_NOTHING is not set") as missing:
        resolve("${env:TEST_NOTHING}")
    assert missing.value.hint == "export TEST_NOTHING=…"
    with pytest.raises(ConfigError, match=r"secret file .*nothing: No such file"):
        resolve(f"${{file:{tmp_path}/nothing}}")


def test_what_only_points_to_a_secret_is_none() -> None:
    assert is_secret_name("sasl.password")
    assert not is_secret_name("ssl.key.location")
    assert not is_secret_name("sasl.username")
    assert check_reference("ssl.truststore.location", "/etc/ca.pem") == "/etc/ca.pem"
    with pytest.raises(ValueError, match="holds a secret"):
        check_reference("sasl.password", "x${env:A}")


def test_the_operators_own_client_settings_come_last() -> None:
    assert client_settings(KafkaConfig(client={"log_level": "7"}))["log_level"] == "7"


def test_a_source_is_in_one_group_only(tmp_path: Path) -> None:
    """A merger deletes the changes that it has released: a second group would miss them."""
    path = tmp_path / "fleet.yaml"
    path.write_text("sources: {rac: {kind: simulated_rac}}\ngroups: {a: {sources: [rac]}, b: {sources: [rac]}}\n")
    with pytest.raises(ConfigError, match="source rac is in the groups a and b"):
        config.load(path)
