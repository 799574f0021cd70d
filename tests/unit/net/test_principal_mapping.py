"""Principals of certificates: the cases of Kafka's SslPrincipalMapperTest.java, and names as Java writes them."""

import subprocess
from pathlib import Path
from ssl import PEM_cert_to_DER_cert

import pytest

from kafkalite.net.distinguished_names import distinguished_name
from kafkalite.net.principal_mapping import PrincipalMapper


def shown(text: str) -> str:
    """The rules as SslPrincipalMapper.toString() writes them."""
    rules = []
    for rule in PrincipalMapper(text).rules:
        if rule.pattern is None:
            rules.append("DEFAULT")
        else:
            rules.append(f"RULE:{rule.pattern.pattern}/{rule.replacement}{'/' + rule.case if rule.case else ''}")
    return f"[{', '.join(rules)}]"


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    ],
)
def test_valid_rules(rules: str) -> None:
    assert PrincipalMapper(rules).rules


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(/$1/",
    ],
)
def test_rules_that_do_not_parse(rules: str) -> None:
    with pytest.raises(ValueError, match="invalid rule"):
        PrincipalMapper(rules)


@pytest.mark.parametrize(
    ("expected", "rules"),
    [
        ("[]", ""),
        ("[DEFAULT]", "DEFAULT"),
        ("[RULE:/]", "RULE://"),
        ("[RULE:/.*]", "RULE:/.*/"),
        ("[RULE:/.*/L]", "RULE:/.*/L"),
        ("[RULE:/, DEFAULT]", "RULE://,DEFAULT"),
        ("[RULE:/, DEFAULT]", "  RULE:// ,  DEFAULT  "),
        ("[RULE:   /     , DEFAULT]", "  RULE:   /     / ,  DEFAULT  "),
        ("[RULE:  /     /U, DEFAULT]", "  RULE:  /     /U   ,DEFAULT  "),
        (
            "[RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT]",
            "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
        ),
        ("[]", ",   , , ,      , , ,   "),
        ("[RULE:/, DEFAULT]", ",,RULE://,,,DEFAULT,,"),
        ("[RULE: /   , DEFAULT]", ",  , RULE: /   /    ,,,   DEFAULT, ,   "),
        ("[RULE:   /  /U, DEFAULT]", "     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,"),
        ("[RULE:\\/\\\\\\(\\)\\n\\t/\\/\\/]", "RULE:\\/\\\\\\(\\)\\n\\t/\\/\\//"),
        ("[RULE:\\**\\/+/*/L, RULE:\\/*\\**/**]", "RULE:\\**\\/+/*/L,RULE:\\/*\\**/**/"),
        (
            "[RULE:,RULE:,/,RULE:,\\//U, RULE:,/RULE:,, RULE:,RULE:,/L,RULE:,/L, RULE:, DEFAULT, /DEFAULT, DEFAULT]",
            "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
        ),
    ],
)
def test_splitting_of_rules(expected: str, rules: str) -> None:
    assert shown(rules) == expected


def test_names_are_mapped_by_the_first_rule_that_matches() -> None:
    mapper = PrincipalMapper(
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
    )
    for name, principal in (
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ):
        assert mapper.name_of(name) == principal
    spaces = PrincipalMapper("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT")
    assert spaces.name_of("CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz") == "Tkac\\, Adam"
    assert PrincipalMapper("RULE:^CN=(.*)$/$1-$12-$2/").name_of("CN=a") == "a-a2-$2"
    with pytest.raises(ValueError, match=r"no rule .* applies to CN=b"):
        PrincipalMapper("RULE:^CN=a$/a/").name_of("CN=b")


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/C=US/O=Org, Inc./OU=A/CN=Duke", "CN=Duke,OU=A,O=Org\\, Inc.,C=US"),
        ("/DC=com/DC=example/UID=u1/CN=x \\+ y", "CN=x \\+ y,UID=u1,DC=example,DC=com"),
        ("/CN=a/emailAddress=a@b.c", "1.2.840.113549.1.9.1=#16056140622e63,CN=a"),
        ("/CN= lead ", "CN=\\ lead\\ "),
    ],
)
def test_distinguished_names_are_those_of_java(tmp_path: Path, subject: str, name: str) -> None:
    """Expected texts are of X500Principal.getName() in Java 17."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    path = tmp_path / "cert.pem"
    subprocess.run(
        [*command, "-subj", subject, "-keyout", "/dev/null", "-out", str(path)], check=True, capture_output=True
    )
    assert distinguished_name(PEM_cert_to_DER_cert(path.read_text())) == name
