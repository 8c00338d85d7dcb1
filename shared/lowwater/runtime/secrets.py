"""References to secrets: `${env:NAME}`, `${file:/path}`. The config holds the reference, not the value."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lowwater.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_SECRET_NAME = re.compile(
    r"password|secret|token|hash_key|account_key|access_key$|sas_key|master_key|customer_key"
    r"|sasl\.oauthbearer\.config|ssl\.key\.pem",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not name.endswith((".location", "_file", ".url", ".uri"))


#: user and password inside a URL
_IN_URL = re.compile(r"(?<=://)([^/@\s:]*:)([^@/\s]+)(?=@)")


def check_url(value: str) -> str:
    """Returns `value`, or raises ValueError if it is a URL with a password that is not a reference."""
    found = _IN_URL.search(value)
    if found and not _REFERENCE.fullmatch(found[2]):
        raise ValueError("a URL with a password in it: write ${env:NAME} or ${file:/path} in its place")
    return value


def redacted(name: str, value: str) -> str:
    """The value of a setting for display: references are unchanged, secret values are replaced by `***`."""
    if value and is_secret_name(name) and not _REFERENCE.fullmatch(value):
        return "***"
    return _IN_URL.sub(lambda found: found[0] if _REFERENCE.fullmatch(found[2]) else f"{found[1]}***", value)


def check_reference(name: str, value: str) -> str:
    """Returns `value`, or raises ValueError if the setting is a secret and its value is not a reference."""
    if value and is_secret_name(name) and not _REFERENCE.fullmatch(value):
        raise ValueError(f"{name} holds a secret: write ${{env:NAME}} or ${{file:/path}} instead of the value")
    return value


def resolve(value: str) -> str:
    """The value with its references replaced. Call it where the value is used, and do not store the result."""

    def filled(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "env":
            if name not in os.environ:
                raise ConfigError(f"environment variable {name} is not set", hint=f"export {name}=…")
            return os.environ[name]
        try:
            return Path(name).read_text().rstrip("\n")
        except OSError as error:
            raise ConfigError(f"secret file {name}: {error.strerror}", hint="mount it, or fix the path") from error

    return _REFERENCE.sub(filled, value)
