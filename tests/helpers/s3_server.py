"""A server of moto, which imitates S3 in memory, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

BUCKET = "bucket"


@dataclass
class S3Server:
    """A running server with an empty bucket.

    Attributes:
        options: The storage options that reach it.
        client: A client of boto3.
    """

    options: dict[str, str]
    client: Any

    def put(self, source: Path | bytes, key: str) -> None:
        """Store some bytes, a file, or all files of a folder."""
        if isinstance(source, bytes):
            self.client.put_object(Bucket=BUCKET, Key=key, Body=source)
        elif source.is_dir():
            for path in source.rglob("*"):
                if path.is_file():
                    self.put(path, f"{key}/{path.relative_to(source)}")
        else:
            self.client.upload_file(str(source), BUCKET, key)


@contextmanager
def serve_s3(secret: str = "secret") -> Iterator[S3Server]:
    """Start a server, and make the bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"{url}/moto-api/").close()
                break
            except OSError:
                time.sleep(0.1)
        client = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="key",
            aws_secret_access_key=secret,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield S3Server({"key": "key", "secret": secret, "endpoint_url": url}, client)
    finally:
        process.terminate()
        process.wait(20)
