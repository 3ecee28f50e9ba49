# fitplug_dask.persons.selection


class Selection:
    def select_rows(self, rows):
        check_rows(rows)
        if self.groups is None:
            selected = self._select_lowest(rows)
        else:
            alone = select_one_of_each_group(self.priority_key, rows, self.groups)
            selected = alone[self._select_lowest(rows.take(alone))]
        check_selection(rows, selected, self.records, self.groups)  # `\label{line:check}`
        return selected

    def _select_lowest(self, rows):
        selected = np.empty(len(rows.tags), dtype=np.int64)
        key = halve_key(self.priority_key)
        limit = min(self.records, len(selected))  # `\label{line:limit}`
        count = loops.select_rows(*key, rows.tags, rows.words, limit, selected)
        return selected[:count]


# fitplug_dask.persons.selection


class RecordGroups:
    def identify_groups(self, words):
        return words if self.field is None else self.field.read(words)[:, None]


def select_one_of_each_group(key, rows, groups):
    identities = groups.identify_groups(rows.words)
    is_crowded = _find_repeated(rows.tags[:, 0], identities)  # `\label{line:repeated}`
    candidates = np.flatnonzero(is_crowded)
    among, identities = (rows.take(candidates), identities[candidates])
    messages = np.hstack([among.tags, among.words]).astype("<u8", copy=False)
    priorities = np.empty((len(candidates), 2), dtype=np.uint64)
    loops.hash_messages(*halve_key(key), messages.view(np.uint8), priorities)
    persons_groups = np.hstack([among.tags, identities])
    ranked = np.lexsort((*among.words.T, priorities[:, 0], *persons_groups.T))  # `\label{line:rankgroups}`
    ordered = persons_groups[ranked]
    is_first = np.ones(len(ranked), dtype=bool)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)  # `\label{line:first}`
    return np.concatenate(
        [np.flatnonzero(~is_crowded), candidates[ranked[is_first]]]
    )


def mix_words(tags, identities):
    mixed = tags.copy()
    for column in identities.T:
        mixed ^= column
        mixed *= _ODD
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _find_repeated(tags, identities):
    mixed = mix_words(tags, identities)
    order = np.argsort(mixed)
    ordered = mixed[order]
    is_as_before = np.zeros(len(order) + 1, dtype=bool)
    is_as_before[1:-1] = ordered[1:] == ordered[:-1]
    repeated = np.empty(len(order), dtype=bool)
    repeated[order] = is_as_before[1:] | is_as_before[:-1]
    return repeated


# tests.helpers.numpy_loops


def select_rows(first, second, tags, words, limit, selected):
    if tags.shape != (len(words), 2) or len(selected) != len(words):
        raise ValueError("each row must have a tag of two words, and room among those kept")
    order = np.argsort(tags[:, 0])
    starts = _find_runs(tags[order, 0])
    lengths = np.diff(np.append(starts, len(order)))
    crowded = np.repeat(lengths > limit, lengths)  # `\label{line:crowded}`
    candidates = order[crowded]
    among = np.hstack([tags[candidates], words[candidates]])
    priorities = np.empty((len(among), 2), dtype=np.uint64)
    hash_messages(
        first, second, among.astype("<u8", copy=False).view(np.uint8), priorities
    )
    ranked = np.lexsort((*among.T[2:], priorities[:, 0], among[:, 1], among[:, 0]))  # `\label{line:rank}`
    runs = _find_runs(among[ranked, :2])
    rank = np.arange(len(ranked)) - np.repeat(
        runs, np.diff(np.append(runs, len(ranked)))
    )
    positions = np.concatenate([order[~crowded], candidates[ranked[rank < limit]]])  # `\label{line:kept}`
    selected[: len(positions)] = positions
    return len(positions)


def _find_runs(values):
    if not len(values):
        return np.zeros(0, dtype=np.intp)
    changed = values[1:] != values[:-1]
    if changed.ndim == 2:
        changed = changed.any(axis=1)
    return np.append(0, np.flatnonzero(changed) + 1)
