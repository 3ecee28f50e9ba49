"""Object stores: what the options of a store mean, and which stores are opened again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from fitplug.files import object_stores, open_object_store

KEYS = {"key": "k", "secret": "s"}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")


def open_store(url: str, **options: Any) -> Any:
    return open_object_store(url, options, 60.0).store


@pytest.mark.parametrize(
    "options",
    [
        {"key": "k", "secret": "s", "token": "t"},
        {"access_key_id": "k", "secret_access_key": "s", "session_token": "t"},
        {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_session_token": "t"},
    ],
)
def test_credentials_have_the_names_of_common_libraries(options: dict[str, str]) -> None:
    config = open_store("s3://bucket/people", **options).config
    assert config["access_key_id"] == "k"
    assert config["secret_access_key"] == "s"
    assert config["session_token"] == "t"


@pytest.mark.parametrize(
    ("url", "options", "allowed"),
    [
        ("s3://b", {**KEYS, "endpoint_url": "http://127.0.0.1:1"}, True),
        ("s3://b", {**KEYS, "endpoint_url": "https://127.0.0.1:1"}, False),
        ("s3://b", KEYS, False),
        ("http://host/a.csv", {}, True),
        ("https://host/a.csv", {}, False),
        ("https://host/a.csv", {"client_options": {"allow_http": True}}, True),
        ("s3://b", {**KEYS, "aws_allow_http": "true"}, True),
        ("s3://b", {**KEYS, "allow_http": "false", "endpoint_url": "http://127.0.0.1:1"}, False),
    ],
)
def test_plain_http_is_allowed_where_it_is_named(
    url: str, options: dict[str, Any], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_store(url, **options).client_options["allow_http"] == str(allowed).lower()
    if url.startswith("s3") and "endpoint_url" not in options:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        assert open_store(url, **options).client_options["allow_http"] == "true"


def test_profiles_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = s\n"
        "[office]\naws_access_key_id = o\naws_secret_access_key = s\n"
    )
    (tmp_path / "config").write_text("[profile office]\nregion = eu-central-1\n")
    with pytest.raises(PermissionError):
        open_store("s3://nobody")
    assert open_store("s3://nobody", anon=True).config["skip_signature"] == "true"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert open_store("s3://one").credential_provider()["access_key_id"] == "d"
    office = open_store("s3://one", profile="office")
    assert office.credential_provider()["access_key_id"] == "o"
    assert office.config["region"] == "eu-central-1"


def test_a_store_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_object_store("s3://bucket/a/b.parquet", KEYS, 60.0)
    other = open_object_store("s3://bucket/c", dict(KEYS), 60.0)
    assert one.store is other.store
    assert (one.root, one.path, other.path) == ("s3://bucket", "a/b.parquet", "c")
    assert open_object_store("s3://bucket/c", {**KEYS, "key": "l"}, 60.0).store is not one.store
    assert open_object_store("s3://bucket/c", KEYS, 9.0).store is not one.store


@pytest.mark.parametrize(
    ("url", "root", "path"),
    [
        ("https://host/a%20b/c.csv#d", "https://host", "a b/c.csv"),
        ("https://host/a.csv?sig=1", "https://host/a.csv?sig=1", ""),
        ("gcs://bucket/a?b#c", "gs://bucket", "a?b#c"),
    ],
)
def test_the_path_in_a_store(url: str, root: str, path: str) -> None:
    options = {"skip_signature": True} if url.startswith("gcs") else {}
    opened = open_object_store(url, options, 60.0)
    assert (opened.root, opened.path) == (root, path)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(obstore.exceptions.UnknownConfigurationKeyError):
        open_store("s3://bucket", **KEYS, nonsense="x")


def test_a_fork_opens_no_store() -> None:
    """Its requests would wait for threads that only its parent has."""
    open_store("s3://bucket", **KEYS)
    child = os.fork()
    if not child:
        try:
            open_store("s3://bucket", **KEYS)
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert object_stores._process == [os.getpid()]
