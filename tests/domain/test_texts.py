"""Arrays of texts and labels: against lists of Python, for texts with any characters."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.domain import get_codec, label_array
from fitplug.domain.label_array import (
    LabelIndex,
    are_equal,
    find_changes,
    find_first_equal,
    make_label_array,
)
from fitplug.domain.texts import Texts, join_texts

# Few letters, so that texts are equal, or the beginning of each other, frequently; words of 8 bytes
# and their neighbours; characters of 1 to 4 bytes, null, and halves of surrogate pairs.
TEXT = st.lists(
    st.sampled_from(["a", "b", "\0", "é", "\u20ac", "😀", "\ud83d", "\ude00", "abcdefgh", "x" * 9]),
    max_size=4,
).map("".join)
LISTS = st.lists(TEXT, min_size=1, max_size=20)


@given(LISTS, st.data())
def test_texts_are_those_of_a_list(texts, data):
    array = Texts.from_list(texts)
    assert array.tolist() == [array[row] for row in range(len(array))] == texts
    assert array.count_characters().tolist() == list(map(len, texts))
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=9))
    assert array.take(np.array(rows, dtype=np.int64)).tolist() == [texts[row] for row in rows]
    first = data.draw(st.integers(0, len(texts) - 1))
    view = array.view(first, len(texts))
    assert view.tolist() == texts[first:]
    assert view == Texts.from_list(texts[first:])
    for length in (0, 1, 3, 9):
        assert array.cut_prefixes(length).tolist() == [text[:length] for text in texts]
        assert view.cut_prefixes(length).tolist() == [text[:length] for text in texts[first:]]
    assert pickle.loads(pickle.dumps(array)) == array
    assert pickle.loads(pickle.dumps(view)) == view
    assert hash(array) == hash(array.take(np.arange(len(texts))))
    assert array.is_valid == all(not 0xD800 <= ord(c) < 0xE000 for text in texts for c in text)


@given(LISTS, st.data())
def test_comparisons_are_those_of_python(texts, data):
    array = Texts.from_list(texts)
    others = data.draw(st.lists(TEXT, min_size=len(texts), max_size=len(texts)))
    expected = [a != b for a, b in zip(texts, others, strict=True)]
    assert array.differ(Texts.from_list(others)).tolist() == expected
    assert (array == Texts.from_list(others)) == (texts == others)
    same = [i == 0 or texts[i] != texts[i - 1] for i in range(len(texts))]
    assert find_changes(array).tolist() == same
    assert find_first_equal(array).tolist() == [texts.index(text) for text in texts]
    joined = join_texts([array, Texts.from_list(others), array], "/")
    assert joined.tolist() == [f"{a}/{b}/{a}" for a, b in zip(texts, others, strict=True)]
    parts = Texts.from_parts([array.view(len(texts) // 2, len(texts)), Texts.from_list(others)])
    assert parts.tolist() == texts[len(texts) // 2 :] + others


@given(LISTS, LISTS)
def test_an_index_finds_what_a_dict_finds(texts, others):
    labels = list(dict.fromkeys(texts))
    index = LabelIndex(Texts.from_list(labels))
    asked = [*texts, *others]
    expected = [labels.index(text) if text in labels else -1 for text in asked]
    assert index.find(Texts.from_list(asked)).tolist() == expected


@pytest.mark.parametrize("labels", [[3, -5, 2**62 - 1, 0], [True, False], [False]])
def test_an_index_of_numbers(labels):
    array = make_label_array(labels)
    index = LabelIndex(array)
    assert index.find(array).tolist() == list(range(len(labels)))
    assert index.find(np.array([17, -(2**62)])).tolist() == [-1, -1]
    assert find_first_equal(array.take(np.array([0, 0]))).tolist() == [0, 0]
    assert not are_equal(array, make_label_array(list(map(str, labels))))
    assert not are_equal(array, array.take(np.zeros(len(labels) + 1, dtype=np.intp)))


def test_texts_with_the_same_hash_are_told_apart(monkeypatch):
    """With most hashes equal, other hashes are taken, and all results are the same."""
    whole = Texts.hash_words

    def hash_badly(self, seed):
        return whole(self, seed) % np.uint64(3 if seed < 2 else 2**60)

    monkeypatch.setattr(Texts, "hash_words", hash_badly)
    texts = [f"{i % 40}" for i in range(100)]
    assert find_first_equal(Texts.from_list(texts)).tolist() == [i % 40 for i in range(100)]
    index = LabelIndex(Texts.from_list(texts[:40]))
    assert index.find(Texts.from_list(texts)).tolist() == [i % 40 for i in range(100)]
    assert index.find(Texts.from_list(["41", ""])).tolist() == [-1, -1]
    assert label_array.LabelIndex(Texts.from_list(["a"])).find(Texts.from_list(["b"])) == -1


def test_many_texts_of_different_lengths():
    rng = np.random.default_rng(4)
    texts = ["x" * n + str(i) for i, n in enumerate(rng.integers(0, 12, 150_000))]
    array = Texts.from_list(texts)
    rows = rng.permutation(len(texts))
    assert array.take(rows).tolist() == [texts[row] for row in rows]
    found = LabelIndex(array).find(array.take(rows))
    np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("offsets", [[0, 3, 2, 4], [0, 1, 9], [-1, 2]])
def test_offsets_that_point_nowhere_are_refused(offsets):
    with pytest.raises(ValueError, match="do not fit the stored texts"):
        Texts.from_buffer(np.frombuffer(b"abcd", dtype=np.uint8), np.array(offsets))


@given(LISTS, st.lists(st.binary(max_size=6), max_size=6), st.booleans())
def test_codes_of_bytes_are_those_of_the_texts(texts, raw, other):
    """Bytes that are no UTF-8 are decoded to surrogates, which hardly any category has."""
    known = list(dict.fromkeys(texts))
    attributes = [fp.Categories(known, other="all other" if other else None)]
    if min(map(len, known)) > 1:
        attributes.append(fp.CodePrefix(known, 2, other="all other" if other else None))
    held = [*raw, *(text.encode("utf-8", "surrogatepass") for text in texts)]
    array = Texts.from_lengths(b"".join(held), np.array(list(map(len, held))))
    decoded = [text.decode("utf-8", "surrogateescape") for text in held]
    for attribute in attributes:
        expected = get_codec(attribute).codes(np.array([*decoded, None], dtype=object)[:-1])
        np.testing.assert_array_equal(get_codec(attribute).codes_of_texts(array), expected)
