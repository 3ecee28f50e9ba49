// Targets as the page edits them, and numbers as people read them.

// The lower-tail quantile of the standard normal, to about 1e-9 (Acklam's rational approximation).
function quantile(p) {
  if (p > 0.5) return -quantile(1 - p);
  const tail = (a, x) => a.reduce((sum, v) => sum * x + v, 0);
  if (p < 0.02425) {
    const q = Math.sqrt(-2 * Math.log(p));
    return tail([-7.784894002430293e-3, -0.3223964580411365, -2.400758277161838,
      -2.549732539343734, 4.374664141464968, 2.938163982698783], q)
      / tail([7.784695709041462e-3, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1], q);
  }
  const q = p - 0.5, r = q * q;
  return q * tail([-39.69683028665376, 220.9460984245205, -275.9285104469687,
    138.3577518672690, -30.66479806614716, 2.506628277459239], r)
    / tail([-54.47609879822406, 161.5858368580409, -155.6989798598866,
      66.80131188771972, -13.28068155288572, 1], r);
}

// A margin of error over the std, where all queries of a simultaneous group hold together.
function marginOverStd(target, group) {
  const each = group.target.simultaneous ? group.queries : 1;
  return -quantile((1 - Math.pow(target.confidence / 100, 1 / each)) / 2);
}

export const NAMES = {
  std: "Std",
  variance: "Variance",
  moe: "Margin of error",
  relative: "% of a count",
  factor: "Factor on all",
};

export const FIELDS = {
  std: "Std", variance: "Variance", moe: "Margin ±", relative: "Margin ± %", factor: "Factor on all targets",
};

export function kindsOf(group) {
  if (group.target.kind === "factor") return ["factor"];
  return group.target.kind === "variance" ? ["variance", "std", "moe", "relative"]
    : ["std", "moe", "relative"];
}

export function readSpecTarget(group) {
  const { kind, value, confidence } = group.target;
  const percent = confidence === null ? 95 : Number((100 * confidence).toPrecision(12));
  return { kind, value, confidence: percent, count: 1000, percent: 1 };
}

// The number that the target's field and slider hold.
export const amountKey = (target) => (target.kind === "relative" ? "percent" : "value");

// The same accuracy as a target of another kind, to four digits.
export function convert(target, kind, group) {
  const margin = marginOverStd(target, group);
  const std = {
    std: target.value, variance: Math.sqrt(target.value), moe: target.value / margin,
    relative: target.percent * target.count / 100 / margin,
  }[target.kind];
  const amount = {
    std, variance: std * std, moe: std * margin, relative: 100 * std * margin / target.count,
  }[kind];
  const changed = { ...target, kind };
  changed[amountKey(changed)] = round(amount, 4);
  return changed;
}

export function toSend({ kind, value, confidence, count, percent }) {
  if (kind === "moe") return { kind, value, confidence };
  if (kind === "relative") return { kind, percent, count, confidence };
  return { kind, value };
}

// A proportional change of the std; the variance goes with its square.
export function relax(target, factor) {
  const key = amountKey(target), changed = { ...target };
  changed[key] = roundUp(target[key] * (target.kind === "variance" ? factor * factor : factor), 4);
  return changed;
}

export const round = (x, digits) => Number(x.toPrecision(digits));

const scaled = (toward) => (x, digits) => {
  if (!(x > 0)) return 0;
  const unit = Math.pow(10, digits - 1 - Math.floor(Math.log10(x)));
  return round(toward(x * unit * (1 + (toward === Math.ceil ? -1e-12 : 1e-12))) / unit, digits);
};
export const roundUp = scaled(Math.ceil);
export const roundDown = scaled(Math.floor);

export const format = (x) => x.toLocaleString("en", { maximumSignificantDigits: 3 });
export const formatUp = (x) => format(roundUp(x, 3));
export const formatDown = (x) => format(roundDown(x, 3));
export const formatPercent = (share) => `${format(100 * share)}%`;
