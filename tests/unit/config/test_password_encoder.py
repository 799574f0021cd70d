"""Encrypted passwords are those of Apache Kafka 3.9; they are stored encrypted, used, and shown nowhere."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.describe_and_alter import (
    Alteration,
    Operation,
    alter_broker,
    check_broker_configs,
    describe_broker,
)
from kafkalite.config.keys import ConfigError
from kafkalite.config.passwords import stored as stored_module
from kafkalite.config.passwords.encoder import PasswordEncoder
from kafkalite.config.passwords.stored import StoredPasswords
from kafkalite.config.stored import read_broker_config
from kafkalite.errors import KafkaErrorCode

SECRET, PASSWORD = "encoder secret", "p\u00e4ssword \N{GRINNING FACE}"
# What EncryptingPasswordEncoder of 3.9.2 has returned for this secret and this password.
JAVA = {
    "cbc": (
        "initializationVector:eC3QCPFIGsSlQGcGgWTKbg==,keyLength:128,salt:sXgleEPK28rrT1hr1Nc6A2c5eHQya4yyRDJ"
        "4tHnTCN5OCadjeQ8Z43qwg6J9ukAnf6lz6mm3Oc76pGHStkn83DCmVxo8ojlPixaXRy1XFOH6vxLtubwYnD92vok/9dhEX5uDGBp"
        "Zqd3N0kVFzeXeZnXeyRaF7++zD7uKNYZyoHBVGjK1GgM8R6VhVMiJfVt0VI9vZRuERsEt8C2XGtvfj1mMQTK+Rir/jWlUggDf3YI"
        "EzprzeTNq8p8YMpwM+Ja3QyGa7MTzfQYX+C4Tn6bSOk1syNw3/MhVasluZLRpKVCpp+NhucGfytaaa4NyoTj4uN2nGFbQpoJjg4n"
        "Qa/5hsQ==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4"
        "096,passwordLength:11,encryptedPassword:1LzoaudpM3ApdVTn5eOWjQ=="
    ),
    "cbc-256-sha1": (
        "initializationVector:Cv3k2mXXyiDmjs45EJnv/w==,keyLength:256,salt:Vdd28+veT9w2DnOHLKlQU8E5+5hpU3Hicj+"
        "kIIiS6LjPRltP/QHa009PxjyAiXe8ChP5N5x1jAqTC9NsjY2l+ZxuAF69Zoz0dWKGHn+/2MchBolThYJVaxA5Hpupfm5KBxbnn8j"
        "ZEe0NiD7Z8Y+6E+xSvGP4KKhBnKsBWdhPQqP2WF270qD7QivcoN/mTEwFhK3KifJeIMEohoLRVJK3aRkj5M13+gg3f5MG94SjSWI"
        "HsGiwoG0qomX9WmYCjp+La4pUoI8Oivr6FQMgZNgUz9ar9dYzlt5t3sdLFUII/9rmqCaR4gjVua7a9vTm4H/IO9IiC4Wt0HRjJVO"
        "bvzTAnQ==,keyFactoryAlgorithm:PBKDF2WithHmacSHA1,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:409"
        "6,passwordLength:11,encryptedPassword:njG1AINh7K+z+rn/NGhyxA=="
    ),
    "gcm-sha256": (
        "initializationVector:oUVruW8gPsOUhv7G,keyLength:128,salt:Q6JVmTm0/XxkkYzyuXvSunIHx63v31Aq/geHtThuaCU"
        "Jbny4nvXXcezNDe6aEASyZkCt+Jb/ULsmCzWDp9AdcGGk+45aKmHl0qaKbk+4LYqVTaWL6izCoCJUtKjQ9J3ygk6oECJkPQRUqvt"
        "Rzp3uToVDxQ3P0vZh+KeBJQpyDZlYDPomMhmJfvqfxzqhBm49c2CV5OKnnUbF/M3qwQHe0DqwyKdb0y32dH7MxP0BAuiBcHIdNLP"
        "g0nZhmuY1nYVbSPRFGVD6oAP+VzG81Arg3g8UqUpITmu2rOMGOo1Bmw1IcV5L1xfoieAa/RlHzJkFVps921rToAW5cB1SMqGYIw="
        "=,keyFactoryAlgorithm:PBKDF2WithHmacSHA256,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength"
        ":128,iterations:4096,passwordLength:11,encryptedPassword:CxHHYpuxQYFYE22XO9cZgRsg5EQjCSi5fIc5bDEE"
    ),
}
DES = JAVA["cbc"].replace("AES/CBC/PKCS5Padding", "DESede/CBC/PKCS5Padding")
NAME = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="hunter2";'
STATIC = {"password.encoder.secret": SECRET}


@pytest.mark.parametrize("text", JAVA.values(), ids=JAVA)
def test_text_of_java_is_decrypted(text: str) -> None:
    assert PasswordEncoder(SECRET).decode(text) == PASSWORD


@pytest.mark.parametrize("password", ["", "x", PASSWORD, "-----BEGIN" + 4_000 * "x"])
@pytest.mark.parametrize(
    "encoder",
    [
        PasswordEncoder(SECRET),
        PasswordEncoder(SECRET, "PBKDF2WithHmacSHA1", key_bits=256, iterations=1024),
        PasswordEncoder(SECRET, "PBKDF2WithHmacSHA256", "AES/GCM/NoPadding", 192),
    ],
    ids=["default", "cbc", "gcm"],
)
def test_password_is_decrypted_by_another_encoder(encoder: PasswordEncoder, password: str) -> None:
    text = encoder.encode(password)
    assert PasswordEncoder(SECRET).decode(text) == password
    assert text != encoder.encode(password), "salt and initialization vector are random"
    assert {each.partition(":")[0] for each in text.split(",")} - {"authenticationTagLength"} == {
        each.partition(":")[0] for each in JAVA["cbc"].split(",")
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no encrypted password"),
        (PASSWORD, "no encrypted password"),
        (JAVA["cbc"].replace("salt:", "salt:*"), "no encrypted password"),
        (JAVA["cbc"].replace("iterations:4096", "iterations:x"), "no encrypted password"),
        (JAVA["cbc"].replace("iterations:4096", "iterations:100001"), "100001 iterations, allowed are 100000"),
        (JAVA["cbc"].replace("iterations:4096", "iterations:4095"), "cannot be decrypted"),
        (JAVA["cbc"].replace("keyLength:128", "keyLength:64"), "not supported"),
        (JAVA["cbc"].replace("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"), "not supported"),
        (DES, "not supported"),
        (JAVA["cbc"].replace("passwordLength:11", "passwordLength:10"), "cannot be decrypted"),
        (JAVA["gcm-sha256"].replace("encryptedPassword:C", "encryptedPassword:D"), "cannot be decrypted"),
        (JAVA["cbc"].replace("encryptedPassword:1LzoaudpM3", "encryptedPassword:1Lzo"), "c"),
        (1_000_001 * "x", "too long"),
    ],
)
def test_text_that_is_not_valid_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        PasswordEncoder(SECRET).decode(text)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("text", JAVA.values(), ids=JAVA)
def test_other_secret_decrypts_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"password\.encoder\.secret"):
        PasswordEncoder("another secret").decode(text)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return found(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    for call in (lambda: PasswordEncoder(SECRET).encode("x"), lambda: PasswordEncoder(SECRET).decode(JAVA["cbc"])):
        with pytest.raises(ValueError, match=r"pip install 'kafkalite\[security\]'"):
            call()


def stored(config: BrokerConfig, value: str = JAAS) -> dict[str, str]:
    return alter_broker(config, {}, [Alteration(NAME, Operation.SET, value)], all_brokers=False)


def test_password_is_stored_encrypted_used_and_never_shown() -> None:
    config = BrokerConfig(STATIC)
    texts = stored(config)
    assert "hunter2" not in repr(texts) and PasswordEncoder(SECRET).decode(texts[NAME]) == JAAS
    other = BrokerConfig(STATIC)  # that of a broker that starts
    found, problems = read_broker_config(other, {}, texts)
    assert not problems and found.values[NAME] == JAAS and found.stored_texts(all_brokers=False) == texts
    (setting,) = describe_broker(found, [NAME])
    assert (setting.value, setting.sensitive) == (None, True)
    for shown in (repr(found), repr(found.passwords), repr(describe_broker(found)), repr(PasswordEncoder(SECRET))):
        assert "hunter2" not in shown and SECRET not in shown and texts[NAME] not in shown
    replaced = check_broker_configs(found, {NAME: JAAS}, texts, all_brokers=False)
    assert PasswordEncoder(SECRET).decode(replaced[NAME]) == JAAS
    kept = alter_broker(found, texts, [Alteration("max.connections", 0, "9")], all_brokers=False)
    assert kept == {**texts, "max.connections": "9"}
    assert alter_broker(found, texts, [Alteration(NAME, Operation.DELETE, None)], all_brokers=False) == {}


def test_password_of_all_brokers_is_refused() -> None:
    with pytest.raises(ConfigError, match="at default cluster level") as caught:
        alter_broker(BrokerConfig(STATIC), {}, [Alteration(NAME, 0, JAAS)], all_brokers=True)
    assert caught.value.code == KafkaErrorCode.INVALID_REQUEST


def test_wrong_value_of_a_password_is_refused_without_it() -> None:
    static = {**STATIC, "listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "PLAIN", NAME: JAAS}
    with pytest.raises(ConfigError) as caught:
        stored(BrokerConfig(static), "hunter2 required;")
    assert "hunter2" not in str(caught.value).replace("hunter2 required", "")


@pytest.mark.parametrize("text", ["hunter2", JAVA["cbc"]], ids=["clear text", "another secret"])
def test_stored_password_that_cannot_be_decrypted_is_kept_and_reported(text: str) -> None:
    before = BrokerConfig({"password.encoder.secret": "another"})
    found, problems = read_broker_config(before, {}, {NAME: text, "max.connections": "9"})
    assert NAME not in found.values and found.max_connections == 9
    assert found.stored_texts(all_brokers=False) == {NAME: text, "max.connections": "9"}
    (problem,) = problems
    assert NAME in problem and "delete it" in problem and "hunter2" not in problem


def test_passwords_of_the_former_secret_are_encrypted_again() -> None:
    texts = stored(BrokerConfig({"password.encoder.secret": "the former"}))
    changed = BrokerConfig({**STATIC, "password.encoder.old.secret": "the former"})
    found, problems = read_broker_config(changed, {}, {**texts, "max.connections": "9"})
    assert not problems and found.values[NAME] == JAAS and found.passwords is not None
    assert found.passwords.of_former_secret(found.dynamic.values()) == {texts[NAME]}
    again = found.passwords.with_present_secret(found.dynamic)
    assert PasswordEncoder(SECRET).decode(again[NAME]) == JAAS and again["max.connections"] == "9"
    assert not found.passwords.of_former_secret(again.values())
    own = stored(changed)
    assert not found.passwords.of_former_secret(own.values()) and PasswordEncoder(SECRET).decode(own[NAME]) == JAAS


def test_few_decrypted_passwords_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_module, "KEPT_MAX", 2)
    passwords = StoredPasswords(PasswordEncoder(SECRET, iterations=1024))
    texts = [passwords.encode("name", f"{at}") for at in range(4)]
    assert [passwords.decode(each) for each in texts] == ["0", "1", "2", "3"] and len(passwords._known) == 2


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("cipher.algorithm", "DES/CBC/PKCS5Padding"),
        ("keyfactory.algorithm", "MD5"),
        ("key.length", "100"),
        ("key.length", "130"),
        ("iterations", "1023"),
        ("iterations", "100001"),
    ],
)
def test_settings_that_are_not_supported_are_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"password\.encoder\.{key}"):
        BrokerConfig({**STATIC, f"password.encoder.{key}": text})
