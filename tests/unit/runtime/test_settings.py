"""Settings: where they come from, what is refused, and what is never shown."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from blockyard.core.errors import ConfigurationError
from blockyard.core.pack_plan import PackGeometry
from blockyard.runtime.settings import MoverChoice, NodeSettings
from blockyard.runtime.settings_file import MAX_FILE_BYTES
from blockyard.runtime.settings_source import environment_of, load_settings, shield_environment
from blockyard.tiers.g4_packs import MAX_PACK_BYTES, pack_bytes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "node.yaml"


def from_file(file: Path, text: str, **environ: str) -> NodeSettings:
    file.write_text(text)
    return load_settings({"BLOCKYARD_CONFIG": str(file), **environ})


def refused(environ: dict[str, str]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ)
    return caught.value


# --- sources ------------------------------------------------------------------------------------------------------
def test_without_anything_set_the_defaults_hold() -> None:
    assert load_settings({}) == NodeSettings()
    assert load_settings({"PATH": "/bin", "BLOCKYARD_CONFIG": ""}) == NodeSettings()


def test_sizes_switches_and_choices_are_read_from_text() -> None:
    settings = load_settings(
        {"BLOCKYARD_G3__CAPACITY": "64GiB", "BLOCKYARD_G3__ENABLED": "false", "BLOCKYARD_G3__MOVER": "plain"}
    )
    assert settings.g3.capacity == 64 << 30
    assert settings.g3.enabled is False
    assert settings.g3.mover is MoverChoice.PLAIN


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(file: Path) -> None:
    text = "g3: {capacity: 1GiB, enabled: false}\nnode: {name: from-file}\n"
    settings = from_file(file, text, BLOCKYARD_G3__CAPACITY="2GiB")
    assert (settings.g3.capacity, settings.g3.enabled, settings.node.name) == (2 << 30, False, "from-file")
    assert settings.g2 == NodeSettings().g2


def test_a_section_with_nothing_in_it_keeps_its_defaults(file: Path) -> None:
    settings = from_file(file, "g3:\n  # capacity: 1GiB\nnode:\n", BLOCKYARD_NODE__NAME="x")
    assert settings.g3 == NodeSettings().g3
    assert settings.node.name == "x"


def test_an_empty_file_is_no_error(file: Path) -> None:
    assert from_file(file, "") == NodeSettings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        NodeSettings().node.name = "other"


# --- refusals -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("BLOCKYARD_G3__CAPACTY", "BLOCKYARD_G3__CAPACITY"),
        ("BLOCKYARD_NODE_FOLDER", "BLOCKYARD_NODE__FOLDER"),
        ("BLOCKYARD_NODES__FOLDER", "BLOCKYARD_NODE__FOLDER"),
        ("BLOCKYARD_NODE__FOLDER__X", "BLOCKYARD_NODE__FOLDER"),
        ("BLOCKYARD_REDIS", "BLOCKYARD_REDIS__URL"),
        ("BLOCKYARD_ZZZZZ", None),
        ("BLOCKYARD_", None),
        ("blockyard_g3__capacty", "BLOCKYARD_G3__CAPACITY"),
        ("Blockyard_Zzzzz", None),
    ],
)
def test_an_unknown_variable_is_refused_and_the_nearest_named(name: str, nearest: str | None) -> None:
    assert refused({name: "1"}).fields == {"key": name} | ({"nearest": nearest} if nearest else {})


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("g3: {capactiy: 1GiB}", "g3.capactiy", "g3.capacity"),
        ("g33: {}", "g33", "g3"),
        ("reddis: {}", "reddis", "redis"),
        ("g4: {acces_key: x}", "g4.acces_key", "g4.access_key"),
        ("1: {}", "1", None),
    ],
)
def test_an_unknown_key_in_the_file_is_refused_and_the_nearest_named(
    file: Path, text: str, key: str, nearest: str | None
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_file(file, text)
    assert caught.value.fields == {"key": key} | ({"nearest": nearest} if nearest else {})


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("BLOCKYARD_G2__CAPACITY", "much", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "-1", "g2.capacity"),
        ("BLOCKYARD_NODE__BLOCK_BYTES", "1KiB", "node.block_bytes"),
        ("BLOCKYARD_NODE__BLOCK_BYTES", "5000", "node.block_bytes"),
        ("BLOCKYARD_NODE__NAME", "Not.A.Name", "node.name"),
        ("BLOCKYARD_G3__MOVER", "plan", "g3.mover"),
        ("BLOCKYARD_HTTP__BLOCK_MANAGER_PORT", "70000", "http.block_manager_port"),
        ("BLOCKYARD_NATS__LEASE_TICK_SECONDS", "10", "nats"),
        ("BLOCKYARD_NATS__TIMEOUT_SECONDS", "inf", "nats.timeout_seconds"),
        ("BLOCKYARD_REDIS__TIMEOUT_SECONDS", "nan", "redis.timeout_seconds"),
        ("BLOCKYARD_NODE__BLOCK_BYTES", "64MiB", "node.block_bytes"),
        ("BLOCKYARD_G4__TARGET_BYTES", "64MiB", "g4.target_bytes"),
        ("BLOCKYARD_G4__TARGET_BYTES", "0", "g4.target_bytes"),
        ("BLOCKYARD_G4__REQUEST_TIMEOUT_SECONDS", "1e300", "g4.request_timeout_seconds"),
        ("BLOCKYARD_G4__BUCKET", "Not A Bucket", "g4.bucket"),
        ("BLOCKYARD_G4__PREFIX", "", "g4.prefix"),
        ("BLOCKYARD_G4__PREFIX", "/kv", "g4.prefix"),
        ("BLOCKYARD_G4__PREFIX", "kv/", "g4.prefix"),
        ("BLOCKYARD_G4__PREFIX", "kv/../other", "g4.prefix"),
        ("BLOCKYARD_G4__PREFIX", "kv#1", "g4.prefix"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "127.0.0.1:8333", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "s3://bucket", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://a b", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://host:99999", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://host:8333/bucket", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://user:pa/ss@host", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://h\xf6st:8333", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://<a>", "g4.endpoint_url"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://a..b", "g4.endpoint_url"),
        ("BLOCKYARD_NATS__URL", "nats://a,b", "nats.url"),
        ("BLOCKYARD_G4__SECRET_KEY", "x\x01y", "g4.secret_key"),
        ("BLOCKYARD_G4__ACCESS_KEY", "a\nb", "g4.access_key"),
        ("BLOCKYARD_G4__ACCESS_KEY", "a b", "g4.access_key"),
        ("BLOCKYARD_G4__REGION", "x\r\ny", "g4.region"),
        ("BLOCKYARD_G4__REGION", "", "g4.region"),
        ("BLOCKYARD_NATS__URL", "", "nats.url"),
        ("BLOCKYARD_NATS__URL", "nats://[::1", "nats.url"),
        ("BLOCKYARD_NATS__URL", "http://x", "nats.url"),
        ("BLOCKYARD_NATS__URL", "nats://a\nb", "nats.url"),
        ("BLOCKYARD_NATS__URL", "nats://host:99999", "nats.url"),
        ("BLOCKYARD_NATS__LEASE_TICK_SECONDS", "1e-300", "nats.lease_tick_seconds"),
        ("BLOCKYARD_NATS__STREAM_MAX_BYTES", "0", "nats.stream_max_bytes"),
        ("BLOCKYARD_REDIS__URL", "", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host:6379/abc", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host:6379/0?db=abc", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host:6379/\uff11", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://ho\tst:6379/0", "redis.url"),
        ("BLOCKYARD_REDIS__ENTRY_TTL_SECONDS", "99999999999999", "redis.entry_ttl_seconds"),
        ("BLOCKYARD_G2__CAPACITY", "12:30:00", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "\uff11\uff12", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "\u0661GiB", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "1_000", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "64Gbit", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "99999999999TiB", "g2.capacity"),
        ("BLOCKYARD_G2__CAPACITY", "1024TiB", "g2.capacity"),
        ("BLOCKYARD_G3__CAPACITY", "99999999999TiB", "g3.capacity"),
        ("BLOCKYARD_G3__CAPACITY", "1" * 400, "g3.capacity"),
        ("BLOCKYARD_NODE__BLOCK_TOKENS", "1e23", "node.block_tokens"),
        ("BLOCKYARD_NODE__BLOCK_TOKENS", "1" * 23, "node.block_tokens"),
        ("BLOCKYARD_NODE__FOLDER", "", "node.folder"),
        ("BLOCKYARD_NODE__FOLDER", " ", "node.folder"),
        ("BLOCKYARD_NODE__FOLDER", "/a\x00b", "node.folder"),
        ("BLOCKYARD_G3__FOLDER", "", "g3.folder"),
        ("BLOCKYARD_HTTP__HOST", "", "http.host"),
        ("BLOCKYARD_HTTP__HOST", "not a host", "http.host"),
        ("BLOCKYARD_HTTP__HOST", "127.0.0.999", "http.host"),
        ("BLOCKYARD_HTTP__HOST", "[::1]", "http.host"),
        ("BLOCKYARD_HTTP__HOST", "host:80", "http.host"),
        ("BLOCKYARD_HTTP__ADVERTISED_HOST", "http://host", "http.advertised_host"),
        ("BLOCKYARD_HTTP__ADVERTISED_HOST", "0.0.0.0", "http.advertised_host"),
        ("BLOCKYARD_HTTP__ADVERTISED_HOST", "0::0", "http.advertised_host"),
        ("BLOCKYARD_JOBS__QUEUE_LIMIT", "1" * 20, "jobs.queue_limit"),
    ],
)
def test_a_wrong_value_names_its_key(name: str, value: str, key: str) -> None:
    assert refused({name: value}).fields == {"key": key}


@pytest.mark.parametrize(
    ("name", "value", "must"),
    [
        ("G2__CAPACITY", "much", "must be a size like 64GiB"),
        ("NODE__BLOCK_BYTES", "1KiB", "must be a size like 64GiB, from 4KiB to 65532KiB"),
        ("NATS__TIMEOUT_SECONDS", "nan", "must be a number from 0.001 to 3600"),
        ("NATS__TIMEOUT_SECONDS", "0", "must be a number from 0.001 to 3600"),
        ("NATS__TIMEOUT_SECONDS", "soon", "must be a number from 0.001 to 3600"),
        ("HTTP__REMOTE_TIER_PORT", "70000", "must be a whole number from 0 to 65535"),
        ("HTTP__REMOTE_TIER_PORT", "1.5", "must be a whole number from 0 to 65535"),
        ("NODE__BLOCK_TOKENS", "1e23", "must be a whole number from 1 to 1048576"),
    ],
)
def test_a_number_out_of_range_says_what_it_must_be(name: str, value: str, must: str) -> None:
    assert must in refused({f"BLOCKYARD_{name}": value}).detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BLOCKYARD_HTTP__HOST", "0.0.0.0"),
        ("BLOCKYARD_HTTP__HOST", "::"),
        ("BLOCKYARD_HTTP__HOST", "node-1.example.com"),
        ("BLOCKYARD_REDIS__URL", "redis://host"),
        ("BLOCKYARD_REDIS__URL", "rediss://user:p%40ss@host:6379/15?socket_timeout=3"),
        ("BLOCKYARD_REDIS__URL", "unix:///run/redis.sock?db=2"),
        ("BLOCKYARD_NATS__URL", "tls://user:secret@[::1]:4222"),
        ("BLOCKYARD_G2__CAPACITY", " 64 gib "),
        ("BLOCKYARD_G2__CAPACITY", ".5GiB"),
        ("BLOCKYARD_G2__CAPACITY", "512M"),
    ],
)
def test_a_right_value_is_taken(name: str, value: str) -> None:
    load_settings({name: value})


def test_a_variable_may_be_spelled_in_lower_case() -> None:
    assert load_settings({"blockyard_g3__capacity": "2GiB"}).g3.capacity == 2 << 30
    assert refused({"blockyard_config": "/none"}).fields["file"] == "/none"


def test_a_variable_that_is_set_in_two_spellings_is_refused() -> None:
    error = refused({"blockyard_g3__capacity": "2GiB", "BLOCKYARD_G3__CAPACITY": "1GiB"})
    assert error.fields == {"key": "BLOCKYARD_G3__CAPACITY", "second": "blockyard_g3__capacity"}


def test_the_largest_object_fits_into_one_upload() -> None:
    settings = load_settings({"BLOCKYARD_G4__TARGET_BYTES": "65532KiB"})
    largest = PackGeometry(int(settings.node.block_bytes), int(settings.g4.target_bytes))
    assert pack_bytes(largest.blocks_per_pack, largest.stride_bytes) <= MAX_PACK_BYTES
    assert "at most 64 MiB" in refused({"BLOCKYARD_G4__TARGET_BYTES": "64MiB"}).detail


def test_a_block_of_any_allowed_size_fits_into_one_object() -> None:
    block_bytes = (64 << 20) - 2 * 4_096
    assert load_settings({"BLOCKYARD_NODE__BLOCK_BYTES": str(block_bytes)}).node.block_bytes == block_bytes
    one = PackGeometry(block_bytes, 4 << 20)
    assert pack_bytes(one.blocks_per_pack, one.stride_bytes) <= MAX_PACK_BYTES


def test_the_address_of_the_store_needs_no_slash() -> None:
    assert load_settings({"BLOCKYARD_G4__ENDPOINT_URL": "https://[::1]:9000/"}).g4.endpoint_url == "https://[::1]:9000"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BLOCKYARD_G4__ENDPOINT_URL", "http://user:pa/ss@host"),
        ("BLOCKYARD_NATS__URL", "nats://user:pa/ss@host:4222"),
        ("BLOCKYARD_REDIS__URL", "redis://user:pa/ss@host:6379"),
    ],
)
def test_an_address_with_a_password_is_refused_without_showing_it(name: str, value: str) -> None:
    error = refused({name: value})
    assert "ss@" not in str(error)
    assert "'pa'" not in str(error)


def test_what_libraries_would_read_by_themselves_is_taken_away() -> None:
    environ = {"AWS_SESSION_TOKEN": "t", "http_proxy": "p", "HTTPS_PROXY": "p", "all_proxy": "p", "PATH": "/bin"}
    environ |= {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=t"}
    shield_environment(environ)
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "just text",
        "g3: [1]",
        "g3: 7",
        "a: [",
        "g3: !!python/object:os.system {}",
        "g3: {capacity: !!binary aGk=}",
        "g3: {capacity: !other 1GiB}",
        "g3: {capacity: [1]}",
        "[1]: {}",
        "g3: {enabled: true}\n--- # a second document\n",
        "g3: {<<: {capacity: 1GiB}}",
        "g3: {capacity: 2001-13-45}",
        "g3: {capacity: 12:30:00}",
        "g3: {commit_interval_ms: !!int x}",
        "[" * 20_000,
        "{a: " * 20_000,
        "- " * 20_000,
        "g3: {capacity: \x01}",
    ],
    ids=lambda text: text[:24],
)
def test_a_file_that_is_no_settings_file_is_refused(file: Path, text: str) -> None:
    with pytest.raises(ConfigurationError):
        from_file(file, text)


def test_a_missing_or_binary_file_is_named(file: Path) -> None:
    assert refused({"BLOCKYARD_CONFIG": str(file)}).fields["file"] == str(file)
    file.write_bytes(b"\xff\xfe\x00")
    assert refused({"BLOCKYARD_CONFIG": str(file)}).fields["file"] == str(file)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("g3:\n  capacity: 1GiB\n  capacity: 2GiB\n", "g3.capacity", 3),
        ("g3: {}\ng2: {}\ng3: {capacity: 1GiB}\n", "g3", 3),
    ],
)
def test_a_key_that_is_written_twice_is_refused(file: Path, text: str, key: str, line: int) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_file(file, text)
    assert (caught.value.fields["key"], caught.value.fields["line"]) == (key, line)


def test_a_value_means_the_same_in_the_file_as_in_the_environment(file: Path) -> None:
    settings = from_file(file, "node: {name: 017, folder: ~}\ng3: {enabled: off, commit_interval_ms: 017}\n")
    assert settings.node.folder == NodeSettings().node.folder
    assert (settings.node.name, settings.g3.enabled, settings.g3.commit_interval_ms) == ("017", False, 17)


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "too large"])
def test_only_a_regular_file_of_a_bounded_size_is_read(file: Path, kind: str) -> None:
    path = file
    match kind:
        case "device":
            path = Path("/dev/zero")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            file.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert refused({"BLOCKYARD_CONFIG": str(path)}).fields["file"] == str(path)


# --- secrets ------------------------------------------------------------------------------------------------------
SECRETS = {
    "BLOCKYARD_G4__ACCESS_KEY": "hush-access",
    "BLOCKYARD_G4__SECRET_KEY": "hush-secret",
    "BLOCKYARD_REDIS__URL": "redis://:hush-redis@host",
    "BLOCKYARD_NATS__URL": "nats://user:hush-nats@host",
}


def test_secrets_never_show() -> None:
    settings = load_settings(SECRETS)
    for shown in (repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json()):
        assert "hush" not in shown


@pytest.mark.parametrize(
    "text", ["g4: {secret_key: hush, oops", "g4: {secret_key: [hush]}", "g4: {secret_key: hush, region: [1]}"]
)
def test_errors_do_not_show_the_secret_beside_them(file: Path, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_file(file, text)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


# --- for child processes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "environ",
    [
        {},
        SECRETS,
        {
            "BLOCKYARD_NODE__FOLDER": "/state",
            "BLOCKYARD_G3__FOLDER": "/disk",
            "BLOCKYARD_G3__MOVER": "nixl",
            "BLOCKYARD_G3__CAPACITY": "1.5GiB",
            "BLOCKYARD_G3__ENABLED": "no",
            "BLOCKYARD_G4__TAIL_IDLE_SECONDS": "0.25",
            "BLOCKYARD_HTTP__HOST": "::1",
            "BLOCKYARD_LOG__JSON_LINES": "yes",
            "BLOCKYARD_UNSAFE__SKIP_VERIFICATION": "true",
        },
    ],
    ids=["nothing set", "secrets", "every kind of value"],
)
def test_a_child_process_reads_what_its_parent_had(environ: dict[str, str]) -> None:
    settings = load_settings(environ)
    again = environment_of(settings)
    assert set(again) == set(environ)
    assert load_settings(again) == settings


def test_an_optional_value_set_to_nothing_is_left_out_for_a_child() -> None:
    settings = NodeSettings.model_validate({"g3": {"folder": None}})
    assert environment_of(settings) == {}
