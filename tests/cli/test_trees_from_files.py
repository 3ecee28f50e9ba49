"""Domains from files of codes: trees, lists and columns; against trees written out, and errors that
say where and never what.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug_cli.inputs import read_domain

SECRET = "ZEBRACANARY"
TRACTS = ["01001020100", "01001020200", "01003010100", "02001000100"]
BY_PREFIX = {"state": 2, "county": 5, "tract": 11}
PLACES = [("north", "ulm"), ("south", "rom"), ("north", "kiel")]


def domain(folder, name, entry):
    return read_domain({name: entry}, folder)[name]


def refused(folder, entry, says, name="GEOID"):
    with pytest.raises(fp.DomainError) as caught:
        domain(folder, name, entry)
    said = str(caught.value)
    assert re.search(says, said), said
    assert SECRET not in said
    assert "\n" not in said
    return said


@pytest.fixture
def files(tmp_path):
    """The same tracts in every form, with columns that do not matter, and places."""
    lines = [f'{code},"a, b",{i}' for i, code in enumerate(TRACTS)]
    (tmp_path / "tracts.csv").write_text("GEOID,NAME,POP\n" + "\n".join(lines) + "\n\n")
    (tmp_path / "bom.csv").write_bytes(
        b"\xef\xbb\xbf" + ("POP,GEOID\r\n" + "".join(f"1,{code}\r\n" for code in TRACTS)).encode()
    )
    (tmp_path / "named.csv").write_text("tract\n" + "\n".join(TRACTS))
    (tmp_path / "codes.txt").write_text("\n".join(TRACTS) + "\n\n")
    texts = pa.array(TRACTS)
    pq.write_table(pa.table({"GEOID": texts, "x": [1.5] * 4}), tmp_path / "tracts.parquet")
    pq.write_table(pa.table({"FIPS": texts.dictionary_encode()}), tmp_path / "dictionary.parquet")
    pq.write_table(pa.table({"FIPS": texts.cast(pa.large_string())}), tmp_path / "large.pq")
    columns = dict(zip(("region", "city"), map(list, zip(*PLACES, strict=True)), strict=True))
    (tmp_path / "places.csv").write_text(
        "city,region\n" + "\n".join(f"{city},{region}" for region, city in PLACES)
    )
    pq.write_table(pa.table(columns), tmp_path / "places.parquet")
    return tmp_path


@pytest.mark.parametrize(
    "source",
    [
        {"codebook": "tracts.csv"},
        {"codebook": "tracts.csv", "column": "GEOID"},
        {"codebook": "bom.csv"},
        {"codebook": "named.csv"},
        {"leaves": "codes.txt"},
        {"codebook": "tracts.parquet"},
        {"codebook": "dictionary.parquet", "column": "FIPS"},
        {"codebook": "large.pq", "column": "FIPS"},
    ],
)
def test_a_tree_by_prefixes(files, source):
    made = domain(files, "GEOID", {"levels": BY_PREFIX, **source})
    assert made == fp.Hierarchy(BY_PREFIX, TRACTS)
    assert made.labels_at("county") == ("01001", "01003", "02001")


@pytest.mark.parametrize("file", ["places.csv", "places.parquet"])
def test_a_tree_by_columns(files, file):
    made = domain(files, "PLACE", {"levels": ["region", "city"], "codebook": file})
    assert made == fp.Hierarchy(["region", "city"], PLACES)
    made = domain(files, "city", {"levels": ["region", "place"], "codebook": file})
    assert made.values == ("ulm", "kiel", "rom")


def test_lines_are_counted_over_cells_of_several_lines(tmp_path):
    (tmp_path / "p.csv").write_text('city,note\n"a","1\n2"\n\nb,3\nb,4\n')
    refused(tmp_path, {"codebook": "p.csv", "column": "city"}, "line 6: an earlier line has")
    (tmp_path / "p.csv").write_text('city,note\n"a","1\n2"\n\nb\n')
    refused(tmp_path, {"codebook": "p.csv", "column": "city"}, "line 5 must have as many values")


def test_integers_of_parquet_stay_integers(files):
    table = pa.table({"region": [1, 2, 1], "area": pa.array([10, 20, 11], pa.int16())})
    pq.write_table(table, files / "areas.parquet")
    made = domain(files, "AREA", {"levels": ["region", "area"], "codebook": "areas.parquet"})
    assert made == fp.Hierarchy(["region", "area"], [(1, 10), (2, 20), (1, 11)])
    made = domain(files, "AREA", {"codebook": "areas.parquet", "column": "area", "other": "x"})
    assert made == fp.Categories([10, 20, 11], other="x")


def test_lists_and_columns_of_plain_values(files):
    assert domain(files, "G", {"categories": "codes.txt"}) == fp.Categories(TRACTS)
    made = domain(files, "G", {"codebook": "tracts.csv", "column": "GEOID", "other": "rest"})
    assert made == fp.Categories(TRACTS, other="rest")
    made = domain(files, "G", {"prefix": 2, "categories": "codes.txt"})
    assert made == fp.CodePrefix(TRACTS, 2)
    made = domain(files, "G", {"levels": ["tract"], "leaves": "codes.txt"})
    assert made == fp.Hierarchy(["tract"], [[code] for code in TRACTS])


def test_a_codebook_of_many_attributes_in_parquet(files):
    table = pa.table(
        {"attribute": ["SEX", "RACE", "SEX"], "value": ["1", "01", "2"], "l": [1, 2, 3]}
    )
    pq.write_table(table, files / "book.parquet")
    assert domain(files, "SEX", {"codebook": "book.parquet"}) == fp.Categories(["1", "2"])
    made = domain(files, "RACE", {"codebook": "book.parquet", "other": "x"})
    assert made == fp.Categories(["01"], other="x")


WRONG = {
    "none.csv": (None, "none.csv: no such codebook"),
    "none.parquet": (None, "none.parquet: no such codebook"),
    "empty.csv": ("", "empty.csv: the codebook is empty"),
    "header.csv": ("GEOID\n", "column 1 has no values"),
    "twice.csv": ("GEOID\n{0}\n{1}\n{0}\n", "twice.csv: line 4: an earlier line has the same code"),
    "short.csv": (
        "GEOID\n{0}\n01\n",
        "line 3: a code of level 'tract' must have 11 characters, not 2",
    ),
    "blank.csv": (
        "GEOID,x\n{0},1\n{1} ,2\n",
        "line 3: the value in column 1 must not start or end",
    ),
    "gap.csv": ("GEOID,x\n{0},1\n,2\n", "line 3: no value in column 1"),
    "ragged.csv": ("GEOID,x\n{0},1\n{1}\n", "line 3 must have as many values"),
    "other.csv": ("ZEBRACANARY,x\n{0},1\n", "has no column 'tract'. Name the column of leaves"),
    "columns.csv": ("GEOID,GEOID\n{0},1\n", "several columns 'GEOID'"),
    "quotes.csv": ('GEOID\n{0}\n"ZEBRACANARY', "not valid CSV"),
    "people.csv": ("GEOID\nZEBRACANARY1\nZEBRACANARY2\n", "must have 11 characters, not 12"),
    "book.json": ("{{}}", "must be CSV or Parquet, not JSON"),
    "damaged.parquet": ("PAR1ZEBRACANARYPAR1", "damaged.parquet cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_codebook(tmp_path, name):
    content, says = WRONG[name]
    if content is not None:
        (tmp_path / name).write_text(content.format(*TRACTS))
    refused(tmp_path, {"levels": BY_PREFIX, "codebook": name}, says)


def test_what_is_wrong_with_parquet(tmp_path):
    def of(column):
        pq.write_table(pa.table({"GEOID": column}), tmp_path / "t.parquet")
        return {"levels": BY_PREFIX, "codebook": "t.parquet"}

    refused(tmp_path, of(pa.array([1.5])), "column 1 must contain text or integers, not double")
    refused(tmp_path, of(pa.array([1001])), "row 1: the code must be text, not an integer")
    refused(tmp_path, of(pa.array([TRACTS[0], None])), "row 2: no value in column 1")
    refused(tmp_path, of(pa.array([TRACTS[0]] * 2)), "row 2: an earlier line has the same code")
    refused(tmp_path, of(pa.array([2**62])), "row 1: the code must be between")
    refused(tmp_path, of(pa.array([], pa.string())), "column 1 has no values")
    pq.write_table(pa.table({"a": [1, 2**62], "b": [1, 2]}), tmp_path / "t.parquet")
    large = {"levels": ["a", "b"], "codebook": "t.parquet"}
    refused(tmp_path, large, "row 2: the code must be between")


def test_what_is_wrong_with_a_list(tmp_path):
    (tmp_path / "l.txt").write_text("\n \n")
    refused(tmp_path, {"levels": BY_PREFIX, "leaves": "l.txt"}, "the list of leaves is empty")
    (tmp_path / "l.txt").write_text(f"{TRACTS[0]}\n\n{TRACTS[0]}\n")
    refused(tmp_path, {"levels": BY_PREFIX, "leaves": "l.txt"}, "line 3: an earlier line has")
    refused(tmp_path, {"categories": "l.txt"}, "line 3: an earlier line has the same code")
    (tmp_path / "l.txt").write_text(f"{TRACTS[0]}\n{SECRET}\n")
    entry = {"prefix": 12, "categories": "l.txt"}
    refused(tmp_path, entry, "for 'prefix' = 12, the code must have at least 12 characters")
    refused(tmp_path, {"categories": "none.txt"}, "no such list of codes")
    refused(
        tmp_path,
        {"levels": ["a", "b"], "leaves": "l.txt"},
        "'levels' must give the length of each level's prefix",
    )
    refused(
        tmp_path,
        {"levels": BY_PREFIX, "leaves": "l.csv"},
        "l.csv must be a text file with one code per line",
    )


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_copy_of_the_records_is_no_list(tmp_path, mark):
    records = ["SEX{0}AGE", "1{0}{1}", "2{0}40", "", "1{0}"]
    (tmp_path / "people.txt").write_text("\n".join(records).format(mark, SECRET))
    says = "people.txt must be a text file with one code per line. For a table, set"
    refused(tmp_path, {"categories": "people.txt"}, says)
    refused(tmp_path, {"levels": BY_PREFIX, "leaves": "people.txt"}, says)
    # One line may have marks, and so may several that are no columns.
    for lines in (["a{0}b"], ["a{0}b", "c"], ["a{0}b", "c{0}d{0}e"]):
        (tmp_path / "l.txt").write_text("\n".join(lines).format(mark))
        assert domain(tmp_path, "P", {"categories": "l.txt"}).size == len(lines)


def test_labels_that_cannot_be_told_apart(tmp_path):
    (tmp_path / "p.csv").write_text(
        f"a,b,c\n{SECRET}/x,y,1\n{SECRET},x/y,2\nz,y,3\nz,x/y,4\n", encoding="utf-8"
    )
    refused(
        tmp_path, {"levels": ["a", "b", "c"], "codebook": "p.csv"}, "Remove '/' from the codes."
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"levels": BY_PREFIX, "codebook": 3}, "'codebook' must be the path of a file"),
        ({"levels": BY_PREFIX, "codebook": "tracts.csv", "column": 3}, "'column' must be the name"),
        ({"levels": BY_PREFIX, "codebook": "tracts.csv", "leafs": []}, "unknown key 'leafs'"),
        (
            {"levels": BY_PREFIX, "codebook": "tracts.csv", "leaves": "x"},
            "'codebook' and 'leaves' cannot be combined",
        ),
        (
            {"levels": BY_PREFIX, "leaves": "codes.txt", "column": "x"},
            "'column' and 'leaves' cannot",
        ),
        ({"levels": {"a": 2, "b": 2}, "codebook": "tracts.csv"}, "increasing positive integers"),
        ({"levels": {"total": 11}, "codebook": "tracts.csv"}, "level name 'total' is reserved"),
        ({"levels": 3, "codebook": "tracts.csv"}, "levels must be a list or a mapping of names"),
        ({"levels": ["NAME", "GEOID", "GEOID"], "codebook": "tracts.csv"}, "named twice"),
        ({"levels": ["STATE", "GEOID"], "codebook": "tracts.csv"}, "no column 'STATE'"),
        ({"codebook": "tracts.csv", "column": "GEOID", "prefix": 2}, "unknown key 'prefix'"),
        ({"column": "GEOID"}, "'codebook' must be the path"),
    ],
)
def test_what_is_wrong_with_an_entry(files, entry, says):
    refused(files, entry, says)


def test_a_damaged_parquet_is_an_error_or_another_tree(files):
    """Never the end of the process, as of some footers, and never what the file holds."""
    path = files / "tracts.parquet"
    whole, told = path.read_bytes(), []
    for at in range(4, len(whole), max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        try:
            domain(files, "GEOID", {"levels": BY_PREFIX, "codebook": path.name})
        except fp.DomainError as error:
            told.append(str(error))
    assert len(told) > 5
    assert not any(code in text for code in TRACTS for text in told)
