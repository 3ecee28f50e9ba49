# fitplug_opendp.lazyframes


def make_tables(input_domain, input_metric, plan):
    dp = import_opendp()
    dp.assert_features("contrib", "honest-but-curious")
    check_space(input_domain, input_metric)
    if not isinstance(input_domain, LazyFrameDomain):
        raise ValueError(...)
    _check_metric(dp, input_metric)  # `\label{line:metric}`
    empty = make_empty_frame(input_domain)
    schema = dict(empty.collect_schema())
    for name in plan.workload.attributes:
        _check_column(name, plan.domain[name], schema)  # `\label{line:column}`
    if isinstance(plan.unit, ReplaceOne):
        _check_replacements(plan, input_metric)  # `\label{line:checkreplacements}`
        return dp.t.make_user_transformation(
            input_domain,
            input_metric,
            tables_domain(plan),
            input_metric,
            lambda frame: count_frame(plan, schema, frame),
            lambda d_in: d_in,  # `\label{line:identity}`
        )
    if str(input_metric.type) != _FRAME_METRIC:
        bounded = dp.t.make_stable_lazyframe(  # `\label{line:cast}`
            input_domain, input_metric, empty, MO=_FRAME_METRIC
        )
        return bounded >> then_tables(plan)
    return dp.t.make_user_transformation(
        input_domain,
        input_metric,
        tables_domain(plan),
        dp.symmetric_distance(),
        lambda frame: count_frame(plan, schema, frame),
        upper_records,  # `\label{line:boundrecords}`
    )


def _check_metric(dp, metric):
    known = (
        dp.symmetric_distance(),
        dp.change_one_distance(),
        dp.frame_distance(dp.symmetric_distance()),
    )
    if metric not in known:
        raise ValueError(...)


def _check_replacements(plan, metric):
    check_metric_of_tables(plan.unit, metric)
    strict = list_names_without_other(plan.domain, plan.workload.attributes)
    if strict:  # `\label{line:strict}`
        raise ValueError(...)


def _check_column(name, attribute, schema):
    if name not in schema:
        suggestion = (
            suggest_nearest(name, schema)
            if can_name_columns(list(schema))
            else suggest_column(name, schema)
        )
        raise ValueError(...)
    dtype, wanted = (schema[name], get_codec(attribute).value_type)
    fits = {
        str: dtype in (pl.String, pl.Categorical, pl.Enum),
        int: dtype.is_integer(),
        bool: dtype == pl.Boolean,
        float: dtype.is_integer() or dtype.is_float(),
        datetime.date: dtype in (pl.Date, pl.String)
        or (isinstance(dtype, pl.Datetime) and dtype.time_zone is None),
    }
    if not fits[wanted]:
        raise ValueError(...)


# fitplug_opendp.lazyframes


def upper_records(bounds):
    groups = defaultdict(list)
    per_group = defaultdict(list)
    for number, bound in enumerate(bounds):
        key = _identify_columns(bound.by, number)
        if not bound.by:
            groups[key].append(1)  # `\label{line:one}`
        elif bound.num_groups is not None:
            groups[key].append(bound.num_groups)
        if bound.per_group is not None:
            per_group[key].append(bound.per_group)
    products = [
        min(groups[key]) * min(per_group[key])
        for key in groups.keys() & per_group.keys()
    ]
    if not products:
        raise ValueError(...)
    return min(products)  # `\label{line:min}`


def _identify_columns(by, number):
    if all(expression.meta.is_column() for expression in by):
        return frozenset(expression.meta.output_name() for expression in by)
    return number  # `\label{line:number}`


# fitplug.domain.days


def find_days(ticks, unit, step=1):
    shared = math.gcd(step, _TICKS_A_DAY[unit])
    step, a_day = (step // shared, _TICKS_A_DAY[unit] // shared)
    most = min((_LAST + 2) * a_day // step + 1, (2**63 - 1) // step)
    days = np.clip(ticks, -most, most) * np.int64(step) // np.int64(a_day)
    return days, (ticks != _NOT_A_TIME) & (days >= _FIRST) & (days <= _LAST)


# fitplug_opendp.lazyframes


def count_frame(plan, schema, frame):
    names = plan.workload.attributes
    try:
        columns = (
            frame.select(pl.col(names)) if names else frame.select(records=pl.len())
        )
        data = columns.collect()  # `\label{line:collect}`
    except (Exception, pl.exceptions.PanicException):
        data = None
    if data is None or any(data.schema[name] != schema[name] for name in names):
        raise DataError(...)  # `\label{line:dataerror}`
    codes = {name: encode_column(get_codec(plan.domain[name]), data[name]) for name in names}
    return Tables.from_codes(
        plan.domain, codes, plan.tables, data.height if names else int(data.item())
    )


def encode_column(codec, column):
    if codec.value_type is str or column.dtype == pl.String:
        return _encode_texts(codec, column.cast(pl.String))  # `\label{line:texts}`
    missing = column.is_null().to_numpy()
    if codec.value_type is datetime.date:
        filled, are_days = _find_days(column)  # `\label{line:days}`
        missing = missing | ~are_days
    else:
        filled = column.fill_null(False if column.dtype == pl.Boolean else 0).to_numpy()
    return np.where(
        missing, codec.null_code, codec.codes_of_numbers(filled)  # `\label{line:null}`
    )


def _find_days(column):
    ticks = column.to_physical().fill_null(0).to_numpy().astype(np.int64)
    return find_days(ticks, getattr(column.dtype, "time_unit", "D"))


def _encode_texts(codec, texts):
    different = texts.drop_nulls().unique()
    codes = codec.codes(np.array([*different.to_list(), None], dtype=object))
    indices = texts.cast(pl.Enum(different)).to_physical().cast(pl.Int64)
    cells = codes[indices.fill_null(len(different)).to_numpy()]
    return cells


# fitplug.counts.tables


class Tables:
    @classmethod
    def from_codes(cls, domain, codes, tables, records, *, weights=None, rows=None):
        wanted = [domain.ordered(tuple(names)) for names in tables]
        inside = np.ones(records, dtype=bool)
        used = {name for names in wanted for name in names}
        for name in used:
            inside &= codes[name] != OUTSIDE  # `\label{line:inside}`
        outside = OutsideCounts.from_codes(domain, codes, tuple(used), weights)
        row_weights = None if weights is None else weights[inside]
        if row_weights is not None and row_weights.sum(dtype=np.float64) > MAX_RECORDS:
            raise TablesError(...)
        row_codes = {name: codes[name][inside] for name in used}
        n = int(inside.sum())
        counted = {
            names: _count_table(domain, names, row_codes, n, row_weights)
            for names in wanted
        }
        return cls(domain, counted, rows=rows, outside=outside)


def _count_table(domain, names, codes, n, weights):
    measures = list_measures(domain, names)
    check_shares(domain, names, n if weights is None else int(weights.sum()))  # `\label{line:checkshares}`
    cells, strides, size = (np.zeros(n, dtype=np.int64), {}, 1)
    for name in reversed(names):
        strides[name] = size
        size *= domain[name].size
        if name not in measures:
            cells += codes[name] * strides[name]
    shape = get_shape(domain, names)
    if not measures:
        return _count_cells(cells, size, weights).reshape(shape)
    shares = {name: get_codec(domain[name]).count_shares(codes[name]) for name in measures}
    counts = np.zeros(size, dtype=np.int64)
    for corner in np.ndindex(*get_shape(domain, measures)):
        shares_of_row = np.ones(n, dtype=np.int64) if weights is None else weights
        for name, cell in zip(measures, corner, strict=True):
            shares_of_row = shares_of_row * shares[name][:, cell]
        offset = sum(
            cell * strides[name]
            for name, cell in zip(measures, corner, strict=True)
        )
        np.add.at(counts, cells + offset, shares_of_row)  # `\label{line:add}`
    return counts.reshape(shape)


def _count_cells(cells, size, weights):
    if weights is None:
        return np.bincount(to_positions(cells), minlength=size).astype(np.int64)  # `\label{line:bincount}`
    counts = np.zeros(size, dtype=np.int64)
    np.add.at(counts, cells, weights)
    return counts


# fitplug.counts.consistency

MAX_RECORDS = 2**53

MAX_SHARES = 2**58


def check_shares(domain, names, records):
    shares = count_shares(domain, names)
    if shares > 1 and records * shares > MAX_SHARES:
        raise TablesError(...)


# fitplug.domain.measure

MOST_SHARES = 2**25


class MeasureCodec:
    def count_shares(self, codes):
        valued = codes <= self.shares
        above = np.where(valued, codes, 0)
        cells = [np.where(valued, self.shares - above, 0), above]  # `\label{line:countshares}`
        if self.other is not None:
            cells.append(np.where(valued, 0, self.shares))
        return np.stack(cells, axis=1)


# fitplug.domain.domain


def list_names_without_other(domain, names):
    return tuple(
        n
        for n in domain.names
        if n in names and get_codec(domain[n]).null_code == OUTSIDE  # `\label{line:other}`
    )
