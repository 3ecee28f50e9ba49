# fitplug_opendp.gaussian


def make_noise(plan, scale=1.0):
    if not isinstance(scale, (int, float)) or not 0 < scale < math.inf:  # `\label{line:scale}`
        raise BudgetError(...)
    dp = import_opendp()
    std = plan.noise_std * scale  # `\label{line:std}`
    if not LEAST_NOISE <= std <= LARGEST_NOISE:  # `\label{line:range}`
        raise BudgetError(...)
    return make_gaussian(dp, plan.strategy.size, std)


def make_gaussian(dp, size, std):
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=std)  # `\label{line:gaussian}`


def upper_sensitivity(plan, records):
    return ceil_float(
        plan.strategy.structure.compare_records(records) * Fraction(plan.strategy.sensitivity)  # `\label{line:ceil}`
    )


# fitplug_opendp.sampler_check


def check_sampler_once(noise_std):
    _check_power_of_two(max(0, round(math.log2(noise_std))))


# fitplug.families.base.structure


class Structure:
    def compare_records(self, records):
        return Fraction(records, self.changes)  # `\label{line:changes}`


# fitplug.families.base.strategy


class IntegerStrategy:
    @property
    def sensitivity(self):
        return ceil_sqrt(Fraction(self.sensitivity_squared))  # `\label{line:sqrt}`


# fitplug.families.base.mechanism

LEAST_NOISE, LARGEST_NOISE = (1.0, 2.0**55)

# fitplug.numeric.rounding


def ceil_float(exact):
    value = float(exact)
    return (
        value + 0.0 if Fraction(value) >= exact else math.nextafter(value, math.inf)
    )


def ceil_sqrt(exact):
    value = math.sqrt(float(exact))
    while Fraction(value) ** 2 < exact:
        value = math.nextafter(value, math.inf)
    while value > 0 and Fraction(math.nextafter(value, 0)) ** 2 >= exact:
        value = math.nextafter(value, 0)
    return value
