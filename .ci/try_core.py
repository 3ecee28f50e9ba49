"""What a wheel can do on every system, with NumPy and SciPy alone: design and verify a plan."""

import fitplug as fp

domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 115)})
plan = fp.design(fp.Workload(domain, [fp.queries({"sex": "identity", "age": "prefix"}, std=5.0)]))
plan.verify()
print(f"rho = {plan.rho:.4f}, at most {plan.gap:.1e} above the lower bound")
