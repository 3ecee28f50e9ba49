"""Expressions and selections: what they count, against the people themselves; and what is wrong."""

from __future__ import annotations

import re
import string
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.expressions.parser import Expressions, parse
from fitplug.expressions.tokens import Condition
from tests.helpers import people

X = people.histogram()
RELEASE = people.release()
NAMES = people.DOMAIN.names


def count(**cells):
    """How many people are in these cells of some attributes."""
    chosen = X
    for axis, name in enumerate(NAMES):
        own = cells.get(name, range(X.shape[axis]))
        chosen = np.take(chosen, list(own), axis=axis)
    return int(chosen.sum())


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("total", count()),
        ("2 * total - total", count()),
        ("total / 4 + total * .5 - -1e0 * total", 1.75 * count()),
        ("-(total - 3*(total + total))/5", count()),
        ("pyramid", count()),
        ("pyramid[sex=1]", count(sex=[0])),
        ('"pyramid"[sex == "1"]', count(sex=[0])),
        ("pyramid[sex != 1]", count(sex=[1])),
        ("pyramid[sex in [1, 2]]", count()),
        ("pyramid[sex=1, age<=2] + total", count(sex=[0], age=[0, 1, 2]) + count()),
        # Prefixes count up to an age, and so by differences any ages.
        ("pyramid[age <= 5]", count()),
        ("pyramid[age < 1]", count(age=[0])),
        ("pyramid[age = 3]", count(age=[3])),
        ("pyramid[age > 3]", count(age=[4, 5])),
        ("pyramid[2 <= age <= 4]", count(age=[2, 3, 4])),
        ("pyramid[4 >= age, age >= 2]", count(age=[2, 3, 4])),
        ("pyramid[age in (0, 2, 5)]", count(age=[0, 2, 5])),
        ("pyramid[age != 2]", count(age=[0, 1, 3, 4, 5])),
        ('pyramid[age = "0..3"]', count(age=range(4))),
        ('pyramid[age in ["0..1", 4], sex = 2]', count(age=[0, 1, 4], sex=[1])),
        # Of ranges, what they add up to.
        ('"voting age"[age >= 2]', count(age=[2, 3, 4, 5])),
        ("'voting age'[age = '4..5']", count(age=[4, 5])),
        ('"voting age"[2 <= age < 4]', count(age=[2, 3])),
        ("spans[1 <= age <= 3]", count(age=[1, 2, 3])),
        ("spans[age in [0, 4]]", count(age=[0, 4])),
        # Bins by their edges or labels, levels by any node, sums over regions.
        ("cities[income < 10]", count(income=[0])),
        ("cities[income >= 10]", count(income=[1])),
        ("cities[0 <= income < 50]", count()),
        ('cities[income = "[10, 50)", place = kiel]', count(income=[1], place=[1])),
        ("cities[place = north]", count(place=[0, 1])),
        ("cities[place in [ulm, south]]", count(place=[0, 2])),
        ("regions[place = north]", count(place=[0, 1])),
        ("regions[place = rom]", count(place=[2])),
        ("regions[sex = all]", count()),
        # Rows of a matrix by number.
        ("weighted[sex = 0]", count(sex=[0]) - count(sex=[1])),
        ("weighted[sex in [0, 1]]", 1.5 * count(sex=[0]) - 0.75 * count(sex=[1])),
    ],
)
def test_counts_these_people(expression, expected):
    """A release without noise has the exact answers."""
    assert RELEASE.estimate(expression).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("expression", "above", "below"),
    [
        ("pyramid[sex=1] / total", count(sex=[0]), count()),
        ("100 * pyramid[sex=1] / (total + total)", 50 * count(sex=[0]), count()),
        ("-(pyramid[sex=1] / total) * 2 / 4", -0.5 * count(sex=[0]), count()),
    ],
)
def test_ratios(expression, above, below):
    found = RELEASE.estimate(expression)
    assert found.approximate
    assert found.value == pytest.approx(above / below)


MEN, ALL = count(sex=[0]), count()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 - pyramid[sex=1] / total", 1 - MEN / ALL),
        ("pyramid[sex=1] / total + 0.5", MEN / ALL + 0.5),
        ("2 * (3 - pyramid[sex=1] / total) / 4", (3 - MEN / ALL) / 2),
        ("pyramid[sex=1] / total - total / pyramid[sex=1]", MEN / ALL - ALL / MEN),
        ("(pyramid[sex=1] / total) * (1 - pyramid[sex=1] / total)", MEN / ALL * (1 - MEN / ALL)),
        ("total * (pyramid[sex=1] / total)", MEN),
        ("(pyramid[sex=1] / total) * total + total", MEN + ALL),
        ("total / total / total", 1 / ALL),
        ("total / (pyramid[sex=1] / total)", ALL**2 / MEN),
        ("3 / (pyramid[sex=1] / total)", 3 * ALL / MEN),
        ("(total / pyramid[sex=1]) / (pyramid[sex=1] / total) / 2", (ALL / MEN) ** 2 / 2),
        ("-(total / total - pyramid[sex=1] / total - 1) * 2", 2 * MEN / ALL),
    ],
)
def test_sums_and_products_of_ratios(expression, expected):
    assert RELEASE.estimate(expression).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("expression", "is_one"),
    [
        ("pyramid[sex=1] / total - pyramid[sex=2] / total", True),
        ("1 - pyramid[sex=1] / total + 3 * (pyramid[sex=2] / total)", True),
        ("pyramid[sex=1] / total - pyramid[sex=2] / (2 * total)", False),
        ("pyramid[sex=1] / pyramid[age<=1] - pyramid[sex=2] / pyramid[age<=2]", False),
        ("pyramid[sex=1] / total - pyramid[sex=2] / pyramid", False),
    ],
)
def test_ratios_of_one_denominator_are_one_ratio(expression, is_one):
    """Its interval is exact."""
    found = people.release(noise=1.0).estimate(expression)
    assert isinstance(found, fp.Ratio) == is_one
    assert isinstance(found, fp.Approximation) != is_one


def test_products_of_sums_that_are_too_many_are_refused():
    both = "(pyramid[sex=1] / total - total / pyramid)"
    with pytest.raises(fp.WorkloadError, match=r"more than 1,000 products .* at character"):
        RELEASE.estimate(" * ".join([both] * 11))


def test_one_range_is_kept_where_its_attribute_is_not_mentioned():
    domain = fp.Domain({"age": fp.Integers(0, 9), "sex": ["1", "2"]})
    group = fp.queries({"age": fp.ranges([(4, 9)]), "sex": "identity"}, std=1.0, name="adults")
    workload = fp.Workload(domain, [group])
    np.testing.assert_array_equal(parse(workload, "adults")["adults"], [[1, 1]])
    np.testing.assert_array_equal(parse(workload, "adults[sex=2]")["adults"], [[0, 1]])


def test_which_rows_are_used_changes_nothing():
    """Estimates depend on who is counted only: all come from one reconstruction."""
    noisy = people.release(noise=1.0)
    one = noisy.estimate("pyramid[2 <= age <= 3]")
    for other in ("spans[2 <= age <= 3]", '"voting age"[2 <= age < 4]', "pyramid[age in [2, 3]]"):
        same = noisy.estimate(other)
        assert same.value == pytest.approx(one.value, abs=1e-6)
        assert same.std == pytest.approx(one.std, rel=1e-6)
    assert noisy.estimate("pyramid - total").std < 1e-6


def test_names_and_values_of_any_kind():
    domain = fp.Domain(
        {
            'a "b"': ["x, y", "it's", "[z]", "-1"],
            "n": fp.Integers(-3, 2),
            "codes": ["007", "1e5", "2.5", "in"],
            "flag": [True, False],
        }
    )
    groups = [
        fp.marginal('a "b"', std=1.0, name='say "hi"'),
        fp.queries({"n": "prefix"}, std=1.0, name="2"),
        fp.marginal("codes", "flag", std=1.0, name="größe"),
    ]
    workload = fp.Workload(domain, groups)

    def weights(text):
        (array,) = parse(workload, text).values()
        return array.tolist()

    assert weights('"say ""hi"""[\'a "b"\' = "x, y"]') == [1, 0, 0, 0]
    assert weights("'say \"hi\"'['a \"b\"' in ['it''s', \"[z]\", -1]]") == [0, 1, 1, 1]
    assert weights('"2"[n <= -2]') == [0, 1, 0, 0, 0, 0]
    assert weights('"2"[-2 <= n <= 0]') == [-1, 0, 0, 1, 0, 0]
    assert weights('"2"[-1 > n]') == [0, 1, 0, 0, 0, 0]
    assert weights("größe[codes = 007, flag = True]") == [[1, 0], [0, 0], [0, 0], [0, 0]]
    assert weights("größe[codes in [1e5, 2.5, in]]") == [[0, 0], [1, 1], [1, 1], [1, 1]]
    assert weights("größe[codes >= 2.5, flag != True]") == [[0, 0], [0, 0], [0, 1], [0, 1]]


WRONG = [
    ("", r"' is not an expression\. Write for example: pyramid"),
    ("   ", r"' is not an expression\. Write for example: pyramid"),
    ("totel", "no query group 'totel' at character 1. Did you mean 'total'"),
    ("total + voting_age", "'voting_age' at character 9. Did you mean 'voting age'.*quotes"),
    ("total +", "expected a group, a number or \\(, found the end"),
    ("total total", r"found 'total' at character 7\. Put names with spaces in single quotes"),
    ("total > total", r"found '>' at character 7\. Outside brackets, only"),
    ("total = 3", r"found '=' at character 7\. Outside brackets, only"),
    ("total 'total'", "expected an operator or the end, found 'total' at character 7$"),
    ("(total", "expected \\), found the end"),
    ("total)", "found '\\)' at character 6"),
    ("3", "the expression names no query group. Known"),
    ("total + 3", "cannot add a number to counts at character 7"),
    ("total * total", "cannot multiply counts by counts at character 7"),
    ("total / 0", "division by zero at character 7"),
    ("1 / total", "cannot divide a number by counts at character 3"),
    (
        "total / (total / total + total / pyramid)",
        "cannot divide by a sum of ratios at character 7",
    ),
    ("total / ((total / total) * (total / total) * 0)", "division by zero at character 7"),
    (
        "total * (2 + total / total) + 1 + total * total",
        "cannot multiply counts by counts at character 41",
    ),
    ("total / total + total", "cannot add a ratio to counts at character 15"),
    ("1e999 * total", "number at character 1 is too large"),
    ("1e308 * 1e308 * total", "finite"),
    ("1e308 * total * 10", "finite"),
    ("total / 1e-320 / 1e-320", "too large"),
    ("'total", "an unclosed quote at character 1 is not allowed here"),
    ("total ; drop", "';' at character 7"),
    ("__import__('os')", "no query group '__import__'"),
    ("total.real", "no query group 'total.real'"),
    ("(" * 60 + "total" + ")" * 60, "nested more than 50"),
    ("pyramid[", "expected an attribute or a value, found the end"),
    ("pyramid[]", "expected an attribute or a value"),
    ("pyramid[sex]", "'pyramid' has no attribute|expected one of"),
    ("pyramid[sex=1", "expected \\], found the end"),
    ("pyramid[sex~1]", "'~' at character 12"),
    ("pyramid[sx=1]", "'pyramid' has no attribute 'sx' at character 9. Did you mean 'sex'"),
    ("pyramid[income<10]", "'pyramid' has no attribute 'income'"),
    ("pyramid[1=2]", "no attribute '1'"),
    ("pyramid[sex=3]", "sex has no value '3'. Known: '1', '2'"),
    ("pyramid[age=-]", "expected a number"),
    ("pyramid[age in 3]", "expected \\[ and values"),
    ("pyramid[age=17]", "age has no value '17'. Its values are 0 to 5"),
    ("pyramid[age<=1.5]", "age has no value '1.5'"),
    ("pyramid[age<0]", "age < 0 selects no rows"),
    ("pyramid[age<2, age>3]", "age < 2, age > 3 selects no rows"),
    ("pyramid[age=1, age=2]", "selects no rows"),
    (
        "'voting age'[age >= 3]",
        r"\. Select whole groups of age: 2\.\.5, 4\.\.5\.",
    ),
    ("'voting age'", "cannot count all of age"),
    ("cities[income<=10]", r"half open, \[from, to\)\. Use income < 10"),
    ("cities[income>10]", r"half open, \[from, to\)\. Use income >= 10"),
    ("cities[income<20]", "income has no value '20'. Known: '0', '10', '50'|Did you mean"),
    ("cities[place=roma]", "Did you mean 'rom'"),
    ("cities[place<=rom]", "nodes of place have no order"),
    ("regions[place=ulm]", "cannot count place = ulm"),
    ("weighted", "Select rows by number, for example sex = 0"),
    ("weighted[sex=2]", "there is no row 2"),
    ("weighted[sex<=1]", "can only be selected with sex = number"),
    ("weighted[sex=0, sex=1]", "selects no row"),
]


@pytest.mark.parametrize(("expression", "says"), WRONG)
def test_what_is_wrong_is_said_in_a_sentence(expression, says):
    with pytest.raises(fp.WorkloadError, match=says) as caught:
        RELEASE.estimate(expression)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_value_that_is_also_a_row_is_refused():
    domain = fp.Domain({"a": ["x", "y", "x..y"]})
    workload = fp.Workload(domain, [fp.queries({"a": "prefix"}, std=1.0, name="g")])
    with pytest.raises(fp.WorkloadError, match="names both a value and a row"):
        parse(workload, 'g[a = "x..y"]')


@given(st.text(alphabet=string.printable, max_size=40) | st.lists(
    st.sampled_from(["total", "pyramid", "[", "]", "(", ")", "+", "-", "*", "/", "sex", "age", "=",
                     "<=", "in", ",", "1", "2.5", " ", '"', "'", "cities", "income"]),
    max_size=14,
).map(" ".join))  # fmt: skip
def test_any_text_is_an_expression_or_a_workload_error(text):
    try:
        found = RELEASE.estimate(text)
    except fp.WorkloadError as error:
        said = str(error)
    else:
        said = f"{found.value} and {found.std}"
        assert np.isfinite(found.value)
        assert found.std >= 0
    assert "\n" not in said


AGES = st.sets(st.integers(0, 5), min_size=1)


@given(ages=AGES, sexes=st.sets(st.integers(0, 1), min_size=1), factor=st.integers(-9, 9))
def test_any_set_of_people_is_counted(ages, sexes, factor):
    listed = ", ".join(map(str, sorted(ages)))
    chosen = ", ".join(str(s + 1) for s in sorted(sexes))
    text = f"{factor} * pyramid[age in [{listed}], sex in [{chosen}]] + spans[age in [{listed}]]"
    expected = factor * count(age=sorted(ages), sex=sorted(sexes)) + count(age=sorted(ages))
    assert RELEASE.estimate(text).value == pytest.approx(expected, abs=1e-5)


@given(
    shape=st.recursive(
        st.integers(0, 2),
        lambda part: (
            st.tuples(st.sampled_from("+-"), part, part)
            | st.tuples(st.just("*"), st.integers(-3, 3), part)
        ),
        max_leaves=8,
    )
)
def test_arithmetic_is_that_of_numbers(shape):
    atoms = [
        ("total", count()),
        ("pyramid[sex=1]", count(sex=[0])),
        ("spans[age=3]", count(age=[3])),
    ]

    def both(part):
        if isinstance(part, int):
            return atoms[part]
        sign, left, right = part
        if sign == "*":
            text, value = both(right)
            return f"{left} * ({text})", left * value
        (one, a), (two, b) = both(left), both(right)
        return f"({one} {sign} {two})", a + b if sign == "+" else a - b

    text, value = both(shape)
    assert RELEASE.estimate(text).value == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("pyramid[sex=1|2]", count()),
        ("pyramid[sex = 1 or 2]", count()),
        ("pyramid[sex = 1 or sex = 2, age <= 2]", count(age=[0, 1, 2])),
        # Whoever several conditions hold for counts once.
        ("pyramid[age = 1 or 1 or 3]", count(age=[1, 3])),
        ("pyramid[age = 1 or age <= 2]", count(age=[0, 1, 2])),
        ("pyramid[age < 2 or 4 <= age <= 5, sex=2]", count(age=[0, 1, 4, 5], sex=[1])),
        ("pyramid[age in [0, 1] | age in (1, 2)]", count(age=[0, 1, 2])),
        ("pyramid[age = 0|1 or 3]", count(age=[0, 1, 3])),
        ("pyramid[age != 2 or age = 3]", count(age=[0, 1, 3, 4, 5])),
        ("cities[place = ulm | south]", count(place=[0, 2])),
        ("cities[place = north or ulm]", count(place=[0, 1])),
    ],
)
def test_or_joins_values_and_conditions_of_one_attribute(expression, expected):
    assert RELEASE.estimate(expression).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("pyramid[sex=1 or age=2]", "'or' at character 15 joins conditions on 'sex' and 'age'"),
        ("pyramid[age != 2 or 3]", "Only values after age = can be joined by 'or'"),
        ("pyramid[age <= 2|3]", "Only values after age = can be joined by 'or'"),
        ("pyramid[age = 1 or]", "expected an attribute or a value, found '\\]'"),
        ("pyramid[age = 1 ||2]", "expected an attribute or a value, found '|'"),
        ("pyramid[sex=1 and age=2]", "conditions with a comma, and put words in quotes"),
        ("pyramid or total", r"or the end, found 'or' at character 9\. Outside .* \+ - \* /"),
        # The quotes that are missing, around all that was meant.
        ("pyramid[age=18+]", r"expected \], found '\+' at character 15"),
        ("pyramid[age=18+, sex=1]", r"in quotes: '18\+'"),
        ("pyramid[age in [3, 18+]]", r"in quotes: '18\+'"),
        ("pyramid[sex=C-1]", "Put this value in quotes: 'C-1'"),
        ("cities[place=New Ulm, income<10]", "Put this value in quotes: 'New Ulm'"),
        ("cities[place=O'Ulm Nord']", "Put this value in quotes: .O'Ulm Nord'."),
        ("pyramid[age=18%]", "'%' at character 15 is not allowed here.*in quotes"),
    ],
)
def test_what_is_wrong_with_or_and_quotes(expression, says):
    with pytest.raises(fp.WorkloadError, match=says) as caught:
        RELEASE.estimate(expression)
    assert "\n" not in str(caught.value)


ODD = ["=SUM(A1)", "a, b", "both or", "or", "in", "it's", 'say "hi"', "[z]", "-", "-1.5", "1e-5"]
ODD += ["'\"", "1.5.2", "ä", " x"]


@pytest.mark.parametrize("label", ODD)
def test_hints_can_be_typed_back(label):
    domain = fp.Domain({"the sex": ["1", "2"], "age": fp.Integers(0, 3)})
    groups = [
        fp.queries({"the sex": fp.subsets({label: ["1"], "rest": ["1", "2"]})}, std=1.0, name="g"),
        fp.queries({"the sex": [[1.0, 0.0], [1.0, 2.0]]}, std=1.0, name="m"),
    ]
    workload = fp.Workload(domain, groups)

    def hinted(text, pattern):
        with pytest.raises(fp.WorkloadError, match=pattern) as caught:
            parse(workload, text)
        return re.search(pattern, str(caught.value))[1]

    typed = hinted("g", r"Select rows by label, for example (.*)\.$")
    assert parse(workload, f"g[{typed}]")["g"].tolist() == [1, 0]
    known = hinted("g['the sex' = qqqqqqqqqqqq]", "Known: (.*), 'rest'")
    assert parse(workload, f"g['the sex' = {known}]")["g"].tolist() == [1, 0]
    typed = hinted("m", r"Select rows by number, for example (.*)\.$")
    assert parse(workload, f"m[{typed}]")["m"].tolist() == [1, 0]
    # Rows of values: those that add up to what is asked, and what was asked.
    values = fp.Domain({"a": ["1", label, "3"]})
    rows = [fp.queries({"a": fp.ranges([(label, label)])}, std=1.0, name="r")]
    workload = fp.Workload(values, rows)
    typed = hinted("r[a = 3]", r"Select whole groups of a: (.*)\.$")
    assert parse(workload, f"r[a = {typed}]")["r"].tolist() == [1]
    assert str(Condition("a", "=", (label,))) == f"a = {typed}"


def test_or_is_a_value_where_a_value_stands():
    workload = fp.Workload(
        fp.Domain({"state": ["or", "wa", "in", "18+"]}), [fp.marginal("state", std=1.0, name="g")]
    )
    for text, expected in {
        "g[state = or]": [1, 0, 0, 0],
        "g[state = or or wa]": [1, 1, 0, 0],
        "g[state in [or, in]]": [1, 0, 1, 0],
        "g[state = '18+' | or]": [1, 0, 0, 1],
    }.items():
        assert parse(workload, text)["g"].tolist() == expected


@given(
    options=st.lists(
        st.tuples(
            st.sampled_from(["=", "in", "<=", "both"]), st.sets(st.integers(0, 5), min_size=2)
        ),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_any_union_is_that_of_sets(options):
    texts, chosen = [], set()
    for form, ages in options:
        low, high, listed = min(ages), max(ages), sorted(ages)
        if form == "=":
            texts.append("age = " + " or ".join(map(str, listed)))
            chosen |= ages
        elif form == "in":
            texts.append(f"age in {listed}")
            chosen |= ages
        elif form == "<=":
            texts.append(f"age <= {high}")
            chosen |= set(range(high + 1))
        else:
            texts.append(f"{low} <= age <= {high}")
            chosen |= set(range(low, high + 1))
    text = f"spans[{' or '.join(texts)}]"
    assert RELEASE.estimate(text).value == pytest.approx(count(age=sorted(chosen)), abs=1e-5)


@pytest.mark.parametrize("most", [20_000, 100_000])
@pytest.mark.long
def test_expressions_of_any_length_name_their_people(most):
    """Sums and lists of so many values, in memory for these alone."""
    codes = [f"{i:06d}" for i in range(most)]
    workload = fp.Workload(
        fp.Domain({"code": codes, "sex": ["1", "2"]}),
        [fp.marginal("code", "sex", std=1.0, name="g"), fp.total(std=1.0)],
    )
    read = Expressions(workload)
    sizes = []
    for n in (most // 10, most):
        tracemalloc.start()
        listed = read.read(f"g[code in [{', '.join(codes[:n:2])}], sex = 2]")["g"]
        added = read.read(" + ".join(f"g[code={code}, sex=2]" for code in codes[:n:2]))["g"]
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        for found in (listed, added):
            np.testing.assert_array_equal(found.positions, np.arange(1, 2 * n, 4))
            np.testing.assert_array_equal(found.values, 1.0)
    assert sizes[1] < 20 * sizes[0]
