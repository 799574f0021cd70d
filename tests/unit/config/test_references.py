"""References in the configuration file: what they read, and that they read nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.config.files import load
from kafkalite.config.keys import ConfigError

SECRET = "hunter2"
PACKAGE = "org.apache.kafka.common.config.provider"
KEY = "password.encoder.secret"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory with secrets, beside others."""
    found = tmp_path / "allowed"
    found.mkdir()
    (found / "tls.properties").write_text(f"keystore={SECRET}\nnested=${{env:ALLOWED_SECRET}}\n")
    (found / "key-password").write_text(SECRET)
    (found / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "outside").write_text("keystore=outside\n")
    (found / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "allowed-too").mkdir()
    (tmp_path / "allowed-too" / "key").write_text(SECRET)
    return found


def text_of(secrets: Path, reference: str, **changed: str) -> str | None:
    """The value of a key whose text has a reference."""
    lines = {
        "config.providers": "file, dir,env",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": f"{secrets}",
        "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": f"{secrets}",
        "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "ALLOWED_.*",
        KEY: reference,
        **changed,
    }
    file = secrets.parent / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    loaded = load(str(file), {"ALLOWED_SECRET": SECRET, "OTHER": SECRET})
    loaded.broker_config()
    assert not any(name.startswith("config.providers") for name in loaded.texts)
    return loaded.texts[KEY]


def test_references_of_a_file_are_resolved(secrets: Path) -> None:
    assert text_of(secrets, f"${{file:{secrets}/tls.properties:keystore}}") == SECRET
    assert text_of(secrets, f"${{dir:{secrets}:key-password}}") == SECRET
    assert text_of(secrets, "a ${env:ALLOWED_SECRET} b${env:ALLOWED_SECRET}") == f"a {SECRET} b{SECRET}"
    nested = text_of(secrets, f"${{file:{secrets}/tls.properties:nested}}")
    assert nested == "${env:ALLOWED_SECRET}", "what a reference stands for is not resolved again"
    assert text_of(secrets, "${vault:path:key}${x}") == "${vault:path:key}${x}"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("${{file:{0}/tls.properties:other}}", "no such key"),
        ("${{file:{0}/missing:key}}", "No such file"),
        ("${{file:{0}/../outside:keystore}}", "not below an allowed path"),
        ("${{file:{0}/link:keystore}}", "not below an allowed path"),
        ("${{file:{0}-too/key:keystore}}", "not below an allowed path"),
        ("${{file:tls.properties:keystore}}", "not below an allowed path"),
        ("${{dir:{0}:link}}", "not below an allowed path"),
        ("${{dir:{0}:../outside}}", "no name of a file"),
        ("${{dir:{0}:..}}", "no name of a file"),
        ("${{dir:{0}:binary}}", "not UTF-8"),
        ("${{env:OTHER}}", "no such variable"),
        ("${{env:ALLOWED_OTHER}}", "no such variable"),
    ],
)
def test_what_is_not_allowed_or_missing_ends_the_start(secrets: Path, reference: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        text_of(secrets, reference.format(secrets))
    assert KEY in str(raised.value) and SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"config.providers.file.class": "com.example.Vault"}, "not supported"),
        ({"config.providers.file.param.allowed.paths": ""}, "allowed.paths"),
        ({"config.providers.dir.param.allowed.paths": "secrets"}, "allowed.paths"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "allowlist.pattern"),
    ],
)
def test_providers_that_cannot_be_used_are_refused(secrets: Path, changed: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        text_of(secrets, "text", **changed)


def test_other_sources_have_no_references(secrets: Path) -> None:
    reference = "${env:ALLOWED_SECRET}"
    file = secrets.parent / "server.properties"
    file.write_text(f"config.providers=env\nconfig.providers.env.class={PACKAGE}.EnvVarConfigProvider\nbroker.id=1\n")
    environment = {"ALLOWED_SECRET": SECRET, "KAFKALITE_PASSWORD_ENCODER_SECRET": reference}
    loaded = load(str(file), environment, [f"password.encoder.old.secret={reference}"])
    assert loaded.texts[KEY] == loaded.texts["password.encoder.old.secret"] == reference
    with pytest.raises(ConfigError, match=r"config\.providers"):
        load(None, {}, ["config.providers=env"]).broker_config()
