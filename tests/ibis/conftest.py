"""Databases with the same rows: PostgreSQL is started for slow tests, Spark for long ones."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.helpers.databases import (
    LOADERS,
    find_postgres,
    load_postgres,
    load_spark,
    make_rows,
    start_postgres,
)

BACKENDS = [
    "duckdb",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.slow),
    pytest.param("spark", marks=pytest.mark.long),
]
ROWS = make_rows(3000)


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pq.write_table(ROWS, path)
    return path


@pytest.fixture(scope="session", params=BACKENDS)
def people(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The table `people` in each database."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "spark":
        yield load_spark(ROWS, folder, request.getfixturevalue("spark"))
        return
    if request.param == "postgres":
        table = load_postgres(ROWS, folder, request.getfixturevalue("postgres_url"))
    else:
        table = LOADERS[request.param](ROWS, folder)
    yield table
    table.get_backend().disconnect()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if find_postgres() is None:
        pytest.skip("initdb of PostgreSQL is not installed: apt install postgresql")
    with start_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: apt install openjdk-17-jre-headless")
    options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = sql.SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    with warnings.catch_warnings():
        yield session
    session.stop()
