"""Codebooks and files of targets: what a spec takes from other files."""

from __future__ import annotations

import json
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import fitplug as fp
from fitplug.workload.targets import two_sided_quantile
from fitplug_cli.inputs import read_domain
from fitplug_cli.spec import SpecError, load_spec
from tests.helpers.command_line import fitplug
from tests.helpers.places import EXAMPLES

ACS = EXAMPLES / "acs"

SPEC = """
ledger = false

[data]
path = "people.parquet"
[privacy]
unit = {{ records = 1 }}
[domain]
{domain}
[[query]]
name = "pyramid"
SEX = "identity"
AGE = "prefix"
{target}
"""
DOMAIN = 'SEX = ["1", "2"]\nAGE = { integers = [0, 3] }'


def spec(folder, domain=DOMAIN, target='targets = "t.csv"', targets=None):
    if targets is not None:
        (folder / "t.csv").write_text(targets, encoding="utf-8")
    (folder / "spec.toml").write_text(SPEC.format(domain=domain, target=target))
    return load_spec(folder / "spec.toml").workload


def refused(folder, message, **keywords):
    with pytest.raises(SpecError) as caught:
        spec(folder, **keywords)
    assert str(caught.value).startswith(f"{folder / 'spec.toml'}: ")
    assert message in str(caught.value), caught.value
    assert "\n" not in str(caught.value)


class TestCodebooks:
    def test_a_csv_and_a_json_say_the_same(self, tmp_path):
        (tmp_path / "c.csv").write_text(
            "attribute,value,min,max\nSEX,1,,\nRACE,01,,\nSEX,2,,\nRACE,02,,\nAGE,,0,3\n"
        )
        (tmp_path / "c.json").write_text(
            json.dumps({"SEX": {"1": "male", "2": "female"}, "RACE": ["01", "02"],
                        "AGE": {"min": 0, "max": 3}})
        )  # fmt: skip
        by_csv = spec(
            tmp_path,
            'SEX = { codebook = "c.csv" }\nRACE = { codebook = "c.csv", other = "rest" }\n'
            'AGE = { codebook = "c.csv" }',
            "std = 1.0",
        ).domain
        by_json = spec(
            tmp_path,
            'SEX = { codebook = "c.json" }\nRACE = { codebook = "c.json", other = "rest" }\n'
            'AGE = { codebook = "c.json" }',
            "std = 1.0",
        ).domain
        assert by_csv == by_json
        assert by_csv["RACE"] == fp.Categories(["01", "02"], other="rest")
        assert by_csv["AGE"] == fp.Integers(0, 3)

    def test_a_published_schema(self):
        """The JSON that the Census excerpts come with, unchanged."""
        domain = read_domain(
            {name: {"codebook": "schema.json"} for name in ("SEX", "RAC1P", "AGEP", "PUMA")}, ACS
        )
        assert domain["SEX"] == fp.Categories([1, 2])  # its numbers are numbers
        assert domain["AGEP"].size == 96
        assert domain["PUMA"].size == 20

    @pytest.mark.parametrize(
        ("content", "name", "message"),
        [
            ("attribute,value\nSEXX,1\n", "c.csv", "c.csv does not describe this attribute. Check"),
            ("SEX,1\n", "c.csv", "no column 'attribute'"),
            ("attribute,value\nSEX\n", "c.csv", "line 2 must have as many values"),
            ("attribute,value\nSEX,\n", "c.csv", "line 2 has no value. Add a value, or both"),
            (
                "attribute,value\nSEX,1-2\n",
                "c.csv",
                "attribute 1 looks like a range. Write",
            ),
            (
                "attribute,value,min,max\nSEX,,1,x\n",
                "c.csv",
                "line 2: 'min' and 'max' must be",
            ),
            (
                "attribute,value,min,max\nSEX,1,,\nSEX,,1,2\n",
                "c.csv",
                "line 3: an attribute must have either values, or one line with 'min'",
            ),
            ('attribute,value\nSEX,"1\n', "c.csv", "not valid CSV at line 2 or before"),
            ("attribute,value\n", "c.csv", "is empty"),
            ("{", "c.json", "not valid JSON"),
            ("[]", "c.json", "must be a JSON object"),
            ('{"SEX": 3}', "c.json", "attribute 1 must have a list"),
            ('{"SEX": {}}', "c.json", "attribute 1 must have a list"),
            ('{"SEX": ["1", "1"]}', "c.json", "no valid values for this attribute"),
            ("attribute,value\nSEX,1\nSEX,2\nSEX,1\n", "c.csv", "line 4 repeats line 2"),
            (
                'attribute,value\nSEX,1\nSEX," 2"\n',
                "c.csv",
                "line 3: the value must not start or end",
            ),
            (
                "attribute,value\nSEX,1 \nSEX,2\n",
                "c.csv",
                "line 2: the value must not start or end",
            ),
            (
                "attribute,value\nSEX,1\nSEX ,2\n",
                "c.csv",
                "line 3: the attribute must not start or end",
            ),
            ('{"SEX": ["1", "2\\t"]}', "c.json", "a value of attribute 1 must not start or end"),
            ('{"SEX": {" 1": "male"}}', "c.json", "a value of attribute 1 must not start or end"),
        ],
    )
    def test_what_is_wrong_with_one(self, tmp_path, content, name, message):
        (tmp_path / name).write_text(content)
        domain = f'SEX = {{ codebook = "{name}" }}\nAGE = {{ integers = [0, 3] }}'
        refused(tmp_path, message, domain=domain, target="std = 1.0")

    def test_no_such_codebook_or_key(self, tmp_path):
        domain = 'SEX = { codebook = "c.csv" }'
        refused(tmp_path, "no such codebook", domain=domain)
        domain = 'SEX = { codebook = "c.csv", othr = "x" }'
        refused(tmp_path, "Did you mean 'other'?", domain=domain)
        refused(tmp_path, "must be the path", domain="SEX = { codebook = 3 }")
        (tmp_path / "c.json").write_text('{"SEX": {"min": 1, "max": 2}}')
        domain = 'SEX = { codebook = "c.json", other = "1" }'
        refused(tmp_path, "other = '1' is also a listed value", domain=domain)


class TestTargets:
    def test_the_line_that_names_most_counts(self, tmp_path):
        workload = spec(
            tmp_path,
            targets="SEX,AGE,std\n,,9\n2,,5\n,3,4\n2,0..3,2\n1,0,7\n",
        )
        expected = np.array([[7, 9, 9, 4], [5, 5, 5, 2]]) ** 2.0
        np.testing.assert_array_equal(workload["pyramid"].variances, expected)

    @pytest.mark.parametrize("text", ["true", "True"])
    def test_booleans_as_released_tables_have_them(self, tmp_path, text):
        domain = "SEX = [true, false]\nAGE = { integers = [0, 3] }"
        workload = spec(tmp_path, domain, targets=f"SEX,std\n,5\n{text},2\n")
        np.testing.assert_array_equal(workload["pyramid"].variances[:, 0], [4.0, 25.0])

    def test_labels_of_rows_name_their_targets(self, tmp_path):
        (tmp_path / "t.csv").write_text("SEX,std\nall,5\ngap,2\n")
        query = 'SEX = { rows = { all = ["1", "2"], gap = { "1" = 1, "2" = -1 } } }'
        text = SPEC.format(domain=DOMAIN, target='targets = "t.csv"')
        text = text.replace('SEX = "identity"', query).replace('AGE = "prefix"', 'AGE = "total"')
        (tmp_path / "spec.toml").write_text(text)
        found = load_spec(tmp_path / "spec.toml").workload["pyramid"].variances
        np.testing.assert_array_equal(found[:, 0], [25.0, 4.0])
        (tmp_path / "t.csv").write_text("SEX,std\nall,5\ngop,2\n")
        with pytest.raises(SpecError, match="unknown label of 'SEX'"):
            load_spec(tmp_path / "spec.toml")

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("{}", "exactly one of the keys ranges, rows, crosswalk, not {}"),
            (
                '{ rows = { a = ["1"] }, ranges = [] }',
                "must have exactly one of the keys ranges, rows, crosswalk, not rows and ranges",
            ),
            ("{ rows = 3 }", "must be a mapping of labels to lists of values, not 3"),
            ("{ rows = { a = [1] } }", "SEX has no value 1"),
            ("{ row = { a = [1] } }", "unknown key 'row'. Did you mean 'rows'"),
            (
                '["1", "2"]',
                'a list of values is not a query. To count each value, write "identity"',
            ),
        ],
    )
    def test_what_is_wrong_with_rows(self, tmp_path, query, says):
        text = SPEC.format(domain=DOMAIN, target="std = 2.0")
        (tmp_path / "spec.toml").write_text(text.replace('SEX = "identity"', f"SEX = {query}"))
        with pytest.raises(SpecError) as caught:
            load_spec(tmp_path / "spec.toml")
        assert says in str(caught.value)

    @pytest.mark.parametrize("name", ["", 'name = "a: b"\n'])
    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("AGE = { ranges = [[0, 9]] }\nstd = 1.0", "AGE: range [0, 9]: 9 is not in the domain"),
            ('AGE = "prefix"\nstd = -1.0', "std must be"),
            ('AGE = "prefix"\nstd = "1.0"', "std = '1.0' is text. Remove the quotes"),
            ('AGE = "perfix"\nstd = 1.0', "AGE = 'perfix' is not a kind of query"),
            (
                'AEG = "prefix"\nstd = 1.0',
                "'AEG' is neither a key nor an attribute in [domain]. Did you mean 'AGE'",
            ),
        ],
    )
    def test_the_place_of_a_query_has_one_form(self, tmp_path, name, query, says):
        text = SPEC.format(domain=DOMAIN, target="std = 1.0")
        (tmp_path / "spec.toml").write_text(f"{text}[[query]]\n{name}{query}\n")
        with pytest.raises(SpecError) as caught:
            load_spec(tmp_path / "spec.toml")
        place = "[[query]] 'a: b'" if name else "[[query]] 2"
        assert str(caught.value).startswith(f"{tmp_path / 'spec.toml'}: {place}: {says}")

    def test_prefixes_by_their_last_value_or_their_label(self, tmp_path):
        one = spec(tmp_path, targets="AGE,variance\n0,1\n1,2\n2,3\n3,4\n")
        two = spec(tmp_path, targets="AGE,variance\n0,1\n0..1,2\n0..2,3\n0..3,4\n")
        for found in (one, two):
            np.testing.assert_array_equal(
                found["pyramid"].variances, np.tile([1.0, 2.0, 3.0, 4.0], (2, 1))
            )

    def test_margins_of_error_at_one_confidence_stay_what_they_are(self, tmp_path):
        workload = spec(tmp_path, targets="SEX,moe,confidence\n1,30,0.9\n2,20,0.9\n")
        target = workload["pyramid"].target
        assert (target.kind, target.confidence) == ("moe", 0.9)
        assert target.describe() == "moe 20 to 30 at 90%"

    def test_margins_of_error_at_several_confidences(self, tmp_path):
        workload = spec(tmp_path, targets="SEX,moe,confidence\n1,30,0.9\n2,30,\n")
        found = workload["pyramid"].variances
        for row, confidence in enumerate((0.9, 0.95)):
            exact = (30 / two_sided_quantile(confidence)) ** 2
            assert (found[row] <= exact).all()
            np.testing.assert_allclose(found[row], exact, rtol=1e-12)

    def test_one_file_for_several_groups(self, tmp_path):
        (tmp_path / "t.csv").write_text("group,SEX,RACE,std\npyramid,1,,3\npyramid,,,4\nr,,b,5\n")
        (tmp_path / "spec.toml").write_text(
            SPEC.format(domain=DOMAIN + '\nRACE = ["a", "b"]', target='targets = "t.csv"')
            + '[[query]]\nname = "r"\nRACE = [[0, 1]]\nstd = 2.0\n'
        )
        workload = load_spec(tmp_path / "spec.toml").workload
        np.testing.assert_array_equal(workload["pyramid"].variances[:, 0], [9.0, 16.0])

    @pytest.mark.parametrize(
        ("targets", "message"),
        [
            ("SEX,std\n1,3\n", "the answer SEX = 2, AGE = 0 of 'pyramid' has no target"),
            ("SEX,sdt\n1,3\n", "must have exactly one of the columns variance, std, moe"),
            ("SEX,std,moe\n1,3,4\n", "must have exactly one of the columns"),
            (
                "SXE,std\n1,3\n",
                "the name of column 1 is not an attribute of 'pyramid'. Did you mean 'SEX'?",
            ),
            ("SEX,std\n3,3\n", "line 2: unknown label of 'SEX'. Known: '1', '2'"),
            ("SEX,std\n1,x\n", "line 2: 'std' must be a number"),
            ("SEX,std\n1,-1\n", "line 2: 'std' must be finite and above zero"),
            ("SEX,std\n1,nan\n", "line 2: 'std' must be finite"),
            ("SEX,std\n1,inf\n", "line 2: 'std' must be finite"),
            ("SEX,std\n1\n", "line 2 must have as many values"),
            ("SEX,std\n1,2,3\n", "line 2 must have as many values"),
            ("SEX,std,confidence\n,2,0.9\n", "line 2: 'confidence' must be empty for 'std'"),
            ("SEX,moe,confidence\n,2,1.5\n", "line 2: 'confidence' must be above"),
            (
                "SEX,std\n1,2\n2,3\n1,4\n",
                "line 2 and line 4 set different targets for the same answer of 'pyramid'",
            ),
            ("SEX,AGE,std\n,,1\n1,,2\n,3,4\n", "line 3 and line 4 set different targets"),
            (
                "group,SEX,RACE,std\npyramid,1,b,3\n",
                "the name of column 3 is not an attribute of the domain",
            ),
            (
                "group,SEX,std\npyramid,,3\npiramid,1,2\n",
                "line 3: the spec has no such query group. Did you mean 'pyramid'",
            ),
            ("", "the file of targets is empty"),
        ],
    )
    def test_what_is_wrong_with_one(self, tmp_path, targets, message):
        refused(tmp_path, message, targets=targets)

    def test_what_goes_with_it(self, tmp_path):
        refused(tmp_path, "no such file of targets", target='targets = "none.csv"')
        refused(
            tmp_path,
            "'targets' and 'std' cannot be combined",
            target='targets = "t.csv"\nstd = 3.0',
            targets="std\n1\n",
        )
        refused(tmp_path, "'targets' needs 'name', and must be the path", target="targets = 3")


class TestRows:
    """The file of the rows is no public file, by whatever path it is named."""

    ENTRIES = (
        '{ codebook = "FILE", column = "SEX" }',
        '{ codebook = "FILE" }',
        '{ categories = "FILE" }',
        '{ levels = { a = 1 }, leaves = "FILE" }',
        '{ codebook = "c.csv", column = "SEX", crosswalk = { region = "FILE" } }',
        '{ codebook = "c.csv", column = "SEX", crosswalk = { region = { file = "FILE" } } }',
    )

    def refused(self, folder, sex, data, query="SEX = 'identity'"):
        (folder / "spec.toml").write_text(
            f"ledger = false\n[data]\npath = '{data}'\n[privacy]\nunit = {{ records = 1 }}\n"
            f"[domain]\nSEX = {sex}\n[[query]]\n{query}\nstd = 1.0\n"
        )
        with pytest.raises(SpecError) as caught:
            load_spec(folder / "spec.toml")
        assert "must be a public file, not the data of [data] path" in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("entry", ENTRIES)
    def test_is_refused_in_the_domain(self, tmp_path, entry):
        (tmp_path / "people.txt").write_text("SEX,region\n1,a\n2,b\n")
        (tmp_path / "c.csv").write_text("SEX\n1\n2\n")
        (tmp_path / "linked.txt").hardlink_to(tmp_path / "people.txt")
        (tmp_path / "symbolic.txt").symlink_to("people.txt")
        for name in ("people.txt", "../" + tmp_path.name + "/people.txt", "linked.txt",
                     "symbolic.txt", str(tmp_path / "people.txt")):  # fmt: skip
            for data in ("people.txt", "peopl?.txt", f"file://{tmp_path}/people.txt"):
                self.refused(tmp_path, entry.replace("FILE", name), data)

    def test_is_refused_in_a_query(self, tmp_path):
        (tmp_path / "people.csv").write_text("SEX,region\n1,a\n2,b\n")
        for walk in ("'people.csv'", "{ file = './people.csv' }"):
            query = f"SEX = {{ crosswalk = {walk} }}"
            self.refused(tmp_path, '["1", "2"]', "people.csv", query)

    def test_a_copy_and_names_of_files_as_values_are_taken(self, tmp_path):
        (tmp_path / "people.parquet").write_bytes(b"")
        (tmp_path / "c.csv").write_text("SEX\n1\n2\n")
        values = 'SEX = { codebook = "c.csv", column = "SEX" }\nAGE = { integers = [0, 3] }\n'
        values += 'F = ["people.parquet"]\nG = { categories = ["people.parquet", "c.csv"] }'
        assert spec(tmp_path, values, "std = 1.0").domain["SEX"].size == 2


class TestAmounts:
    """Amounts of rho are the decimals of the file, with any number of digits."""

    SPEC = SPEC.replace("unit = {{ records = 1 }}", "unit = {{ records = 1 }}\n{amounts}")

    def load(self, folder, amounts, ledger="rho = 1"):
        text = self.SPEC.replace("ledger = false", "").format(
            amounts=amounts, domain=DOMAIN, target="std = 5.0"
        )
        (folder / "spec.toml").write_text(f'{text}\n[ledger]\npath = "b.db"\n{ledger}\n')
        return load_spec(folder / "spec.toml")

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(amount=st.decimals("1e-9", "1e9", allow_nan=False, places=30))
    def test_they_are_read_exactly(self, tmp_path, amount):
        read = self.load(tmp_path, f"rho = {amount:f}", f"rho = {amount:f}")
        assert read.privacy.rho == read.ledger.exact_total == Fraction(amount)

    def test_integers_and_what_is_no_amount(self, tmp_path):
        assert self.load(tmp_path, "max_rho = 2").privacy.max_rho == 2
        for amount in ("0.0", "-1.5", "nan", "inf", "1e999999999", "1e-999999999", '"0.1"', "true"):
            with pytest.raises(SpecError, match=r"\[privacy\] rho = "):
                self.load(tmp_path, f"rho = {amount}")

    def test_a_plan_keeps_to_its_budget_without_tolerance(self, tmp_path):
        read = self.load(tmp_path, "rho = 0.1000000000000000000001")
        plan = fp.design(read.workload, rho=read.privacy.rho)
        assert plan.rho_exact <= Fraction(repr(plan.rho)) <= read.privacy.rho


def test_an_attribute_may_have_another_name_than_its_column(tmp_path):
    """An export of a spreadsheet in the United States, whose columns are named for people."""
    rows = [("Male", 3, "1/31/2020"), ("Female", 1, "12/1/2020 0:00"), ("Male", 0, "7/4/2020")] * 9
    lines = ["Sex of person,Age,Date of birth", *(f"{a},{b},{c}" for a, b, c in rows)]
    (tmp_path / "people.csv").write_text("\r\n".join(lines))
    dates = 'dates = ["2020-Q1", "2020-Q4"], by = "quarter", date_format = "m/d/y"'
    entries = [
        'SEX = { from = "Sex of person", categories = { Male = "men", Female = "women" } }',
        'AGE = { from = "Age", integers = [0, 3] }',
        f'BORN = {{ from = "Date of birth", {dates} }}',
        'UNUSED = { from = "No such column", integers = [0, 3] }',
    ]
    text = SPEC.format(domain="\n".join(entries), target='std = 0.3\nBORN = "identity"')
    path = tmp_path / "spec.toml"
    path.write_text(text.replace("people.parquet", "people.csv"))
    assert fitplug("run", path) == (0, mock.ANY, "")
    found = fp.Release.load(tmp_path / "release")
    assert found.plan.domain["BORN"].labels == ("2020-Q1", "2020-Q2", "2020-Q3", "2020-Q4")
    assert found.estimate("pyramid[AGE <= 3, BORN = '2020-Q3', SEX = Male]").value > 7
    total = found.estimate("pyramid[AGE <= 3]")
    assert abs(total.value - 27) < 6 * total.std
    path.write_text(path.read_text().replace('from = "Age"', "from = 7"))
    with pytest.raises(SpecError, match="attribute 'AGE': 'from' must be the name of a column"):
        load_spec(path)
