"""Object stores: folders of S3, Google Cloud Storage, Azure and HTTP, opened by `obstore`.

`obstore` repeats requests that fail temporarily, and gives up on stores that do not answer. It is
imported only where a URL needs it.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote

from fitplug.files.parquet import import_library

HTTP_SCHEMES = ("http", "https")
_S3_SCHEMES = ("s3", "s3a")
OBJECT_SCHEMES = frozenset(
    {*HTTP_SCHEMES, *_S3_SCHEMES, "gs", "gcs", "abfs", "abfss", "adl", "az", "azure"}
)
"""The schemes of URLs that `obstore` opens."""

RETRIES: Mapping[str, Any] = {
    "max_retries": 7,
    "backoff": {
        "init_backoff": timedelta(seconds=0.2),
        "max_backoff": timedelta(seconds=10),
        "base": 2,
    },
}

_ATTEMPTS = 4
"""Attempts that the time for a request allows at a store that is silent."""

_CONFIG_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "anon": "skip_signature",
}
"""Names of pandas, Dask and s3fs for keywords of S3, and what `obstore` calls them."""

_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_headers",
    "proxy_url",
    "proxy_ca_certificate",
    "timeout",
    "user_agent",
)
"""Options of requests that other libraries take among those of a store, where `obstore` panics."""

_S3_ENDPOINT = "aws_endpoint_url_s3"
_ENDPOINTS = ("endpoint", _S3_ENDPOINT, "base_url")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_CREDENTIALS = ("access_key_id", "skip_signature", "credential_provider")
_CREDENTIAL_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")


class ObjectPath(NamedTuple):
    """A path in an object store.

    Attributes:
        store: The store of `obstore`.
        root: The URL to which paths in the store are relative, without a slash at the end.
        path: The path, without slashes at its ends.
    """

    store: Any
    root: str
    path: str


_opened: list[tuple[Any, Any]] = []
_lock = threading.Lock()
_process: list[int] = []


def open_object_store(url: str, options: Mapping[str, Any], seconds: float) -> ObjectPath:
    """Open the object store that a URL names.

    Args:
        url: The URL of a file or folder, of one of `OBJECT_SCHEMES`.
        options: The configuration of the store, as `obstore` or as `_CONFIG_NAMES` spell it,
            `client_options` and `retry_config`. `profile` names credentials of AWS, and `headers`
            are sent with each request over HTTP.
        seconds: How long a request may take, with all attempts of those that are not answered.

    Raises:
        ImportError: A package is missing.
        PermissionError: AWS has no credentials.
        Exception: Whatever `obstore` raises about the configuration.
    """
    root, path = _split_url(url)
    settings: dict[str, Any] = {rename_option(name): value for name, value in options.items()}
    of_client = {name: settings.pop(name) for name in _CLIENT_OPTIONS if name in settings}
    settings["client_options"] = _make_client_options(root, settings, seconds) | of_client
    settings["retry_config"] = {
        **RETRIES,
        "retry_timeout": timedelta(seconds=seconds),
        **settings.get("retry_config", {}),
    }
    settings.pop("headers", None)
    with _lock:
        _check_process()
        for key, store in _opened:
            if key == (root, settings):
                return ObjectPath(store, root, path)
        store = _open_store(root, settings)
        _opened.append(((root, settings), store))
    return ObjectPath(store, root, path)


def rename_option(name: str) -> str:
    """Return what `obstore` calls a keyword of a store, without the prefix of S3."""
    plain = name if name == _S3_ENDPOINT else name.removeprefix("aws_")
    return _CONFIG_NAMES.get(plain, plain)


def _split_url(url: str) -> tuple[str, str]:
    """Return the URL of a store, and the path in it. A query is part of the former."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme in HTTP_SCHEMES:
        url = url.partition("#")[0]
        if "?" in url:
            return url, ""
        host, _, path = rest.partition("#")[0].partition("/")
        return f"{scheme}://{host}", unquote(path).strip("/")
    host, _, path = rest.partition("/")
    return f"{'gs' if scheme == 'gcs' else scheme}://{host}", path.strip("/")


def _make_client_options(root: str, settings: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return how requests are sent. Plain HTTP is allowed if the URL or the endpoint names it."""
    named = [root, *(settings.get(name) for name in _ENDPOINTS)]
    if root.partition("://")[0] in _S3_SCHEMES:
        named += [os.environ.get(name) for name in _ENDPOINT_VARIABLES]
    headers = dict(settings.get("headers", {}))
    host = root.partition("://")[2].partition("/")[0]
    if root.startswith("http") and "@" in host:
        user = unquote(host.rpartition("@")[0]).encode()
        headers.setdefault("Authorization", f"Basic {base64.b64encode(user).decode()}")
    return {
        "allow_http": any(str(url).startswith("http://") for url in named),
        "connect_timeout": timedelta(seconds=min(10.0, seconds / _ATTEMPTS)),
        "read_timeout": timedelta(seconds=seconds / _ATTEMPTS),
        "timeout": timedelta(seconds=seconds),
        "default_headers": headers,
        **settings.get("client_options", {}),
    }


def _check_process() -> None:
    """Raise RuntimeError in a fork of a process that has opened a store: requests would hang."""
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise RuntimeError(
            "a process forked after opening a store cannot read from stores. Start a new process "
            "instead."
        )


def _open_store(root: str, settings: Mapping[str, Any]) -> Any:
    stores = import_library("obstore.store")
    config = dict(settings)
    profile = config.pop("profile", None)
    if root.partition("://")[0] in _S3_SCHEMES and not any(name in config for name in _CREDENTIALS):
        config |= _find_credentials(profile)
    return stores.from_url(root, **config)


def _find_credentials(profile: str | None) -> dict[str, Any]:
    """Return the credentials of AWS that files, roles and machines have, by `boto3`.

    `obstore` itself knows those in the environment, and those of machines.
    """
    if profile is None and any(name in os.environ for name in _CREDENTIAL_VARIABLES):
        return {}
    try:
        import_library("boto3")
    except ImportError:
        if profile is not None:
            raise
        return {}
    session = import_library("boto3").Session(profile_name=profile)
    if session.get_credentials() is None:
        raise PermissionError("no AWS credentials were found")
    provider = import_library("obstore.auth.boto3").Boto3CredentialProvider(session)
    return {"credential_provider": provider}
