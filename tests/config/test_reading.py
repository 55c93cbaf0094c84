"""Files, environment and `--set`: what is read, where it came from, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.config import PARAMETERS, Address, Config, Entitlement, load
from mdserver.config.reading import DEFAULT_ORIGIN, file_settings
from mdserver.errors import ConfigError
from mdserver.limits import CONFIG_BYTES_MAX, KB, MB


@pytest.fixture
def write(tmp_path: Path):
    def write_file(content: str | bytes) -> Path:
        file = tmp_path / "x.conf"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write_file


def defaults(folder: Path) -> Config:
    """Return the default configuration, with paths from a folder."""
    paths = {
        row.attribute: folder / row.default
        for row in PARAMETERS.values()
        if isinstance(row.default, Path)
    }
    assert len(paths) > 1
    return Config(**paths)


def test_relative_paths_go_from_the_file_or_from_the_working_directory(
    write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    file = write("LogFolder = ../logs\nKeyStore = keys/all.pem\n")
    environment = {"MDSERVER_JOURNALFOLDER": "journal"}
    config = load(file, environment, ["KeyStore.a:1=a.pem", "ListenEncrypted=a:1"]).config
    assert config.log_folder == tmp_path.parent / "logs"
    assert config.key_store == (tmp_path / "keys" / "all.pem",)
    assert config.journal_folder == here / "journal"
    assert dict(config.key_stores) == {Address("a", 1): (here / "a.pem",)}
    monkeypatch.chdir(tmp_path)
    assert load(Path("x.conf")).config.log_folder == tmp_path.parent / "logs"


def test_all_mistakes_are_named_in_their_order(write) -> None:
    file = write("MaxSubjects = x\nno setting\nLsten = *\nMaxSubjects = 5\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {"MDSERVER_NOSUCH": "1"}, ["LogLevel=loud"])
    lines = str(caught.value).splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        f"{file}:1:",
        f"{file}:2:",
        f"{file}:3:",
        f"{file}:4:",
        "environment:",
        "--set:",
    ]


def test_nothing_given_means_the_defaults() -> None:
    loaded = load()
    assert loaded.config == defaults(Path.cwd())
    assert set(loaded.origins.values()) == {DEFAULT_ORIGIN}
    assert list(loaded.origins) == [name for name, row in PARAMETERS.items() if row.per is None]


def test_a_file_with_comments_blank_lines_and_joined_lines(write) -> None:
    file = write(
        "\ufeff# a comment\r\n"
        "\n"
        "Listen = 127.0.0.1:1, \\\n"
        "   [::1]:2\n"
        "  # another comment\n"
        "EntitlementAllowToken = a # b = c\n"
        "Entitlement=none\n"
    )
    loaded = load(file)
    assert loaded.config.listen == (Address("127.0.0.1", 1), Address("::1", 2))
    assert loaded.config.entitlement_allow_token == "a # b = c"
    assert loaded.config.entitlement is Entitlement.NONE
    assert loaded.origins["Listen"] == f"{file}:3"
    assert loaded.origins["Entitlement"] == f"{file}:7"


def test_later_sources_win(write) -> None:
    file = write("MaxMessageSize = 1KB\nMaxSubjects = 5\nBufferLimit.Send = 1MB\n")
    environment = {
        "MDSERVER_MAXMESSAGESIZE": "2KB",
        "MDSERVER_BUFFERLIMIT_SEND": "2MB",
        "MDSERVER_TOKEN": "what clients connect with",
        "PATH": "/bin",
    }
    loaded = load(file, environment, ["BufferLimit.Send = 3MB"])
    assert loaded.config.max_subjects == 5
    assert loaded.config.max_message_size == 2 * KB
    assert loaded.config.buffer_limit_send == 3 * MB
    assert loaded.origins["MaxSubjects"] == f"{file}:2"
    assert loaded.origins["MaxMessageSize"] == "environment MDSERVER_MAXMESSAGESIZE"
    assert loaded.origins["BufferLimit.Send"] == "--set"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\nMaxSubject = 1", ":2: MaxSubject: no such parameter; the nearest known name is"),
        ("listen = *", ":1: listen: no such parameter; the nearest known name is Listen"),
        ("Qwxyz = 1", ":1: Qwxyz: no such parameter; docs/configuration.md lists all of them"),
        ("MaxSubjects = 1\nMaxSubjects = 2", ":2: MaxSubjects is already set at "),
        ("MaxSubjects = many", ":1: MaxSubjects = many: expected a whole number from 1 to "),
        ("MaxSubjects =", ":1: MaxSubjects =: expected a whole number from 1 to "),
        ("MaxSubjects", ":1: expected `Name = value`"),
        ("= 3", ":1: expected `Name = value`"),
        ("Listen = a:1,\\\n b:x", ":1: Listen = a:1,b:x: b:x: expected `host:port`"),
        ("# c\nListen = a \\", ":2: the file ends after a `\\`"),
        (b"# fine\nListen = \xff", ":2: not UTF-8 text"),
        ("#" * (CONFIG_BYTES_MAX + 1), f": larger than {CONFIG_BYTES_MAX} bytes"),
    ],
)
def test_mistakes_in_a_file(write, content: str | bytes, message: str) -> None:
    file = write(content)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}{message}")
    assert "\n" not in str(caught.value)


def test_a_secret_is_not_repeated_in_an_error(write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(f"EntitlementAllowToken = {'s3cret' * 5000}"))
    assert "s3cret" not in str(caught.value)
    assert "EntitlementAllowToken: expected text of at most" in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read: No such file"):
        load(tmp_path / "none.conf")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_mistakes_in_the_environment() -> None:
    with pytest.raises(
        ConfigError, match=r"MDSERVER_LISTN: no such parameter; .* MDSERVER_LISTEN$"
    ):
        load(environment={"MDSERVER_LISTN": "*"})
    with pytest.raises(ConfigError, match="environment MDSERVER_MAXSUBJECTS: MaxSubjects = x: "):
        load(environment={"MDSERVER_MAXSUBJECTS": "x"})


def test_a_family_has_a_value_for_each_member(write) -> None:
    file = write(
        "ListenEncrypted = [::1]:8443, *\n"
        "KeyStore = all.pem\nKeyStore.[::1]:8443 = six.pem\nKeyStore.*:443 = chain.pem, key.pem\n"
    )
    loaded = load(file, overrides=["KeyStore.[::1]:8443=other.pem"])
    assert loaded.config.key_store == (file.parent / "all.pem",)
    assert dict(loaded.config.key_stores) == {
        Address("::1", 8443): (Path.cwd() / "other.pem",),
        Address("*", 443): (file.parent / "chain.pem", file.parent / "key.pem"),
    }
    assert loaded.origins["KeyStore.[::1]:8443"] == "--set"
    assert loaded.origins["KeyStore.*:443"] == f"{file}:4"
    with pytest.raises(ConfigError, match=r"KeyStore\.host:1 is already set at --set"):
        load(overrides=["KeyStore.host:1=a", "KeyStore.host:1=b"])
    with pytest.raises(ConfigError, match=r"^--set: KeyStore\.host:x: host:x: expected"):
        load(overrides=["KeyStore.host:x=a"])


def test_mistakes_in_overrides() -> None:
    with pytest.raises(ConfigError, match="--set: Listen: expected `Name=value`"):
        load(overrides=["Listen"])
    with pytest.raises(ConfigError, match=r"--set: Lsten: no such parameter; .* Listen$"):
        load(overrides=["Lsten=*"])
    with pytest.raises(ConfigError, match="--set: MaxSubjects is already set at --set"):
        load(overrides=["MaxSubjects=1", "MaxSubjects=2"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["Extension.Presence=true"], "Extension.Presence = true: it needs a LogFolder"),
        (["Extension.Audit.Cache=true"], "Extension.Audit.Cache = true: it needs a LogFolder"),
        (["MaxBatchingSpace=1KB"], "MaxBatchingSpace: it needs MaxBatchingTime"),
        (["Entitlement=Custom"], "Entitlement = Custom: it needs EntitlementCustom.Class"),
        (["Kafka.Away=hold"], "Kafka.Away = hold: it needs ClusterEngine = kafka"),
        (["Listen="], "Listen and ListenEncrypted are both empty"),
        (
            ["ListenEncrypted=a, b:1", "KeyStore.a=x"],
            "ListenEncrypted = b:1: it needs KeyStore or KeyStore.b:1",
        ),
        (
            ["ListenEncrypted=a", "KeyStore=x", "KeyStore.a:1=x"],
            "KeyStore.a:1: this address does not stand in ListenEncrypted",
        ),
    ],
)
def test_values_that_make_no_sense_beside_each_other(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides=overrides)
    assert str(caught.value) == f"--set: {message}"


@given(content=st.binary(max_size=200))
def test_any_file_is_read_or_refused_with_one_line(tmp_path_factory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "x.conf"
    file.write_bytes(content)
    settings, refusals = [], []
    try:
        settings = list(file_settings(file))
    except ConfigError as error:
        refusals.append(str(error))
    assert all("\n" not in refusal for refusal in refusals)
    assert all(setting.name or setting.mistake for setting in settings)
    assert all("\n" not in setting.text for setting in settings)


def test_a_short_password_hides_no_other_mistake() -> None:
    sets = ["ClusterMembers=127.0.0.1:1", "ClusterPassword=short", "Listen=", "ListenEncrypted="]
    with pytest.raises(ConfigError, match=r"(?s)ClusterPassword: .*\n.*are both empty"):
        load(overrides=sets)


def test_a_cluster_needs_a_password_that_nobody_guesses() -> None:
    sets = ["ClusterMembers=127.0.0.1:1", "ClusterPassword=fifteen letters"]
    with pytest.raises(ConfigError, match=r"^--set: ClusterPassword: it needs at least 16"):
        load(overrides=sets)
    assert load(overrides=[sets[0], sets[1] + "."])
