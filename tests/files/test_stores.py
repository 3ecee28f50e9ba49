"""Places in a store: a server of S3's interface that runs here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import fitplug as fp
from fitplug.files import open_place
from fitplug.releases.folder import write_folder
from tests.helpers import people
from tests.helpers.s3_server import serve_s3


@pytest.fixture(scope="module")
def options():
    with serve_s3() as running:
        yield running.options


def test_a_second_writer_is_refused(options):
    place = open_place("s3://bucket/places/one", options)
    place.check_exclusive()
    assert not place.list_sizes()
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: place.create("part", b"%d" % number), range(8)))
    assert sum(won) == 1
    assert place.read("part") == b"%d" % won.index(True)
    place.replace("part", b"other")
    assert dict(place.list_sizes()) == {"part": 5}
    place.remove("part")
    place.remove("part")
    assert place.join("inner").create("part", b"1")
    place.remove_all()
    assert not place.join("inner").list_sizes()
    with pytest.raises(FileNotFoundError):
        place.read("part")


def test_a_release_in_a_store(options, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
    release = people.release(noise=1.0)
    write_folder(release, "s3://bucket/out", 0.95, most=7)
    again = fp.Release.load("s3://bucket/out")
    again.verify()
    assert again.estimate("total") == release.estimate("total")
    with pytest.raises(fp.InputError, match="already exists"):
        write_folder(release, "s3://bucket/out", 0.95)
    place = open_place("s3://bucket/out", options)
    place.join("answers").remove("part-00001.npy")
    with pytest.raises(fp.InputError, match="part-00001"):
        fp.Release.load("s3://bucket/out").verify()
