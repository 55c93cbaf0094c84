"""Options that jobs share: what they take, and what they say of the rest."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mdserver.cli.job_options import (
    SECRET,
    parsed_address,
    parsed_setting,
    refuse_secret,
    spark_size,
)
from mdserver.cli.job_sources import java_settings
from mdserver.cli.main import mdserver


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9101", ("", 9101)),
        ("0.0.0.0:9101", ("0.0.0.0", 9101)),
        ("[::1]:0", ("::1", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parsed_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "host:", "1:x", "65536", "-1", "٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no PORT or HOST:PORT"):
        parsed_address(text)


@pytest.mark.parametrize(
    ("text", "size"), [("4g", "4g"), ("600 MB", "600m"), ("600000000", "600000000b")]
)
def test_sizes(text: str, size: str) -> None:
    assert spark_size(text) == size


@pytest.mark.parametrize("text", ["", "4", "64m", "4x", "-4g"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size of 512m or more"):
        spark_size(text)


def test_settings() -> None:
    assert parsed_setting("a=b=c") == ("a", "b=c")
    for text in ("a", "=b", ""):
        with pytest.raises(click.BadParameter, match="is not NAME=VALUE"):
            parsed_setting(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kafka-option", "sasl.jaas.config=x"], "into a file for --kafka-properties"),
        (["--kafka-option", "ssl.key.password=x"], "into a file for --kafka-properties"),
        (["--spark-option", "spark.ssl.keyPassword=x"], "into spark-defaults.conf"),
        (["--spark-option", "spark.hadoop.fs.s3a.secret.key=x"], "into spark-defaults.conf"),
    ],
)
def test_secrets_are_not_taken_from_the_command_line(words: list[str], said: str) -> None:
    job = ["pipeline", "archive", "--tables", "t", "--kafka", "h:1", "--topics", "a.messages"]
    result = CliRunner().invoke(mdserver, [*job, *words])
    assert result.exit_code == 2
    assert "could see the value of" in result.output.replace("\n", " ")
    assert said in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.truststore.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "basic.auth.user.info",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "spark.authenticate.secret",
        "spark.ssl.historyServer.keyPassword",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.bucket.fleet.secret.key",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.fs.azure.account.key",
        "spark.hadoop.fs.azure.account.key.fleet.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.fleet.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.fleet.blob.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.fleet.dfs.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.google.cloud.auth.service.account.private.key",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_SESSION_TOKEN",
        "spark.executorEnv.AZURE_STORAGE_SAS_TOKEN",
    ],
)
def test_names_of_secrets(name: str) -> None:
    with pytest.raises(click.BadParameter, match="could see the value of"):
        refuse_secret(name, "--spark-option", "")


@pytest.mark.parametrize(
    "name",
    [
        "security.protocol",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.keystore.location",
        "spark.local.dir",
        "spark.sql.shuffle.partitions",
        "spark.hadoop.fs.s3a.endpoint",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.fs.azure.account.auth.type.fleet.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.keyprovider.fleet.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.token.provider.type",
        "spark.hadoop.fs.azure.account.oauth2.client.id.fleet.dfs.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key.id",
        "spark.security.credentials.hive.enabled",
    ],
)
def test_names_of_what_is_no_secret(name: str) -> None:
    assert SECRET.search(name) is None


def test_a_file_of_a_java_client(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(
        "bootstrap.servers=h:1\ntopics=x\nkey.deserializer=K\ngroup.id=g\nssl.key.password = p w \n"
    )
    assert java_settings(file) == {"ssl.key.password": "p w"}


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.location"])
def test_a_file_of_certificates_that_is_not_there(tmp_path: Path, name: str) -> None:
    """Before Spark starts, and also by `ship`, whose library says nothing that helps."""
    file = tmp_path / "consumer.properties"
    file.write_text(f"{name}={tmp_path}/none.pem\n")
    words = ["--kafka", "h:1", "--topics", "a.messages", "--kafka-properties", str(file)]
    told = f"--kafka-properties = {file}: {name} = {tmp_path}/none.pem: there is no such file"
    for job in (["pipeline", "archive", "--tables", "t"], ["ship", "--journal", str(tmp_path)]):
        result = CliRunner().invoke(mdserver, [*job, *words])
        assert str(result.exception) == told
