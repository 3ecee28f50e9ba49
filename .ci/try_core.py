"""What a wheel can do on every system, with NumPy and SciPy alone: design and verify a plan."""

import fitplug as fp
from fitplug.files import read_struct

domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 115)})
plan = fp.design(fp.Workload(domain, [fp.queries({"sex": "identity", "age": "prefix"}, std=5.0)]))
plan.verify()
print(f"rho = {plan.rho:.4f}, at most {plan.gap:.1e} above the lower bound")
# A function of Python would be one that was not compiled.
assert type(read_struct) is not type(lambda: None), "fitplug.files.thrift is not compiled"
