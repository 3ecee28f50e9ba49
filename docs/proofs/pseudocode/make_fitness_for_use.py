# fitplug_opendp.measurement


def make_fitness_for_use(input_domain, input_metric, plan, scale=1.0):
    dp = import_opendp()
    dp.assert_features("contrib", "honest-but-curious")  # `\label{line:features}`
    if not isinstance(plan, Plan):
        raise ValueError(...)
    if plan.has_coverage:
        raise ValueError(...)
    check_unit_is_measurable(plan.unit)  # `\label{line:unit}`
    check_space(input_domain, input_metric)
    if _is_frame_domain(input_domain):
        counting = make_tables(input_domain, input_metric, plan)
        return counting >> then_fitness_for_use(plan, scale)  # `\label{line:frame}`
    check_plan(plan)
    noise = make_noise(plan, scale)
    check_sampler_once(plan.noise_std * scale)  # `\label{line:sampler}`

    def upper_distance(d_in):
        if d_in < 0:  # `\label{line:negative}`
            raise ValueError(...)
        return upper_sensitivity(plan, d_in)

    def make_release(answers):
        return Release(  # `\label{line:release}`
            plan=plan,
            answers=np.asarray(answers, dtype=np.int64),
            rho=noise.map(upper_sensitivity(plan, plan.strategy.structure.changes)),
            noise_scale=float(scale),
        )

    answer = _make_answers(input_domain, input_metric, plan)
    if plan.strategy.structure.public_size:  # `\label{line:public}`

        def release_with_totals(data):
            exact, public = plan.strategy.split_answers(answer(data))
            return make_release(np.concatenate([noise(exact), public]))

        return dp.m.make_user_measurement(
            input_domain,
            input_metric,
            noise.output_measure,
            release_with_totals,
            lambda d_in: noise.map(upper_distance(d_in)),
        )
    strategy = dp.t.make_user_transformation(  # `\label{line:strategy}`
        input_domain,
        input_metric,
        noise.input_domain,
        noise.input_metric,
        answer,
        upper_distance,
    )
    return strategy >> noise >> make_release  # `\label{line:chain}`


def _make_answers(domain, metric, plan):
    if isinstance(domain, ExtrinsicDomain) and isinstance(
        domain.descriptor, TablesDescriptor
    ):
        return make_answers_from_tables(domain.descriptor, metric, plan)
    return make_answers_from_counts(domain, metric, plan)


def _is_frame_domain(domain):
    return isinstance(domain, LazyFrameDomain)


# fitplug_opendp.input_domains


def check_unit_is_measurable(unit):
    if isinstance(unit, ReplaceOne):
        if unit.within:  # `\label{line:within}`
            raise BudgetError(...)
    elif not allows_any_rows(unit):  # `\label{line:records}`
        raise BudgetError(...)


def check_metric_of_tables(unit, metric):
    if isinstance(unit, ReplaceOne):
        if not is_replacement(metric):
            raise ValueError(...)
    elif metric != import_opendp().symmetric_distance():  # `\label{line:symmetric}`
        raise ValueError(...)


def is_replacement(metric):
    return bool(metric == import_opendp().change_one_distance())


# fitplug_opendp.input_domains

_COUNT_TYPES = ("i32", "i64", "u32")

MAX_CELLS = 10**9


class TablesDescriptor:
    def __contains__(self, value):
        return (
            isinstance(value, Tables)
            and all(
                name in value.domain and value.domain[name] == self.domain[name]
                for names in self.tables
                for name in names
            )
            and _holds_all(tuple(value), self.tables)
        )

    def allows(self, plan):
        same = all(
            name in self.domain and self.domain[name] == plan.domain[name]
            for names in plan.tables
            for name in names
        )
        return same and _holds_all(self.tables, plan.tables)


def make_answers_from_tables(descriptor, metric, plan):
    check_metric_of_tables(plan.unit, metric)
    if not descriptor.allows(plan):  # `\label{line:allows}`
        raise ValueError(...)

    def answer(tables):
        if tables not in descriptor:  # `\label{line:member}`
            raise TablesError(...)
        return plan.strategy.answer_exactly(tables.marginal)

    return answer


def make_answers_from_counts(domain, metric, plan):
    dp = import_opendp()
    if not any(metric == dp.l1_distance(T=T) for T in _COUNT_TYPES):  # `\label{line:l1}`
        raise ValueError(...)
    if isinstance(plan.unit, ReplaceOne):
        raise ValueError(...)
    if plan.strategy.structure.shares > 1:  # `\label{line:shares}`
        raise ValueError(...)
    attributes = _find_vector_attributes(domain, plan)

    def answer(counts):
        vector = np.asarray(counts, dtype=np.int64)
        if len(vector) not in attributes:  # `\label{line:length}`
            raise TablesError(...)
        names = attributes[len(vector)]
        exact = (
            vector
            if find_largest_entry(vector) * len(vector) < 2**62
            else vector.astype(object)  # `\label{line:wide}`
        )
        cells = exact.reshape(get_shape(plan.domain, names))

        def sum_over_others(wanted):
            summed = cells.sum(
                axis=tuple(i for i, n in enumerate(names) if n not in wanted)
            )
            left = [name for name in names if name in wanted]
            return np.asarray(summed).transpose(
                [left.index(name) for name in wanted]
            )

        return plan.strategy.answer_exactly(sum_over_others)

    return answer


def _find_vector_attributes(domain, plan):
    used_cells = plan.workload.cell_count
    carriers = [f"Vec<{T}>" for T in _COUNT_TYPES]
    if isinstance(domain, VectorDomain) and domain.carrier_type in carriers:
        attributes_by_size = {}
        whole = (
            []
            if list_measures(plan.domain, plan.domain.names)
            else [plan.domain.names]
        )
        for names in (plan.workload.attributes, *whole):
            size = math.prod(get_shape(plan.domain, names))
            if size <= MAX_CELLS and domain.size in (None, size):
                attributes_by_size.setdefault(size, names)  # `\label{line:sizes}`
        if attributes_by_size:
            return attributes_by_size
    wanted = f'vector_domain(atom_domain(T="i64"), size={used_cells})'
    raise ValueError(...)
