// The page: fields for targets, and what they cost in one variant or in two.

import {
  FIELDS, NAMES, amountKey, convert, format, formatDown, formatPercent, formatUp, kindsOf,
  readSpecTarget, relax, round, roundUp, toSend,
} from "./targets.js";

const NOTHING = 5e-4; // a share of rho that designs may miss
const PATIENCE = 1000; // milliseconds after which a design shows its progress and Cancel
const find = (selector, within = document) => within.querySelector(selector);
const clone = (id) => find(`#${id}`).content.firstElementChild.cloneNode(true);
const show = (element, isShown) => { element.hidden = !isShown; };

let state; // what the server tells of the spec
const variants = [];

class Variant {
  constructor(name) {
    this.name = name;
    this.targets = state.groups.map(readSpecTarget);
    this.bases = this.targets.map((target) => target[amountKey(target)]);
    this.outcome = null;
    this.request = null;
    this.buildCost();
    this.fields = state.groups.map((group, at) => this.buildTarget(group, at));
  }

  buildCost() {
    const cost = this.cost = clone("cost");
    cost.dataset.variant = this.name;
    find(".cancel", cost).addEventListener("click", () => this.cancel());
    find(".reset", cost).addEventListener("click", () => this.reset());
    find(".fit", cost).addEventListener("click", () => this.fit());
    find(".write", cost).addEventListener("click", () => openWriting(this));
    find("#costs").append(cost);
  }

  buildTarget(group, at) {
    const field = clone("target");
    field.dataset.variant = this.name;
    const select = find("select", field), fault = find(".fault", field);
    for (const kind of kindsOf(group)) select.add(new Option(NAMES[kind], kind));
    fault.id = `fault-${this.name}-${at}`;
    for (const input of field.querySelectorAll("input")) {
      input.setAttribute("aria-describedby", fault.id);
    }
    select.addEventListener("change", () => {
      const changed = convert(this.targets[at], select.value, group);
      this.bases[at] = changed[amountKey(changed)] || 1;
      this.set(at, changed);
    });
    const edit = (key) => (event) => {
      const number = event.target.valueAsNumber;
      const name = key === "amount" ? amountKey(this.targets[at]) : key;
      this.set(at, { ...this.targets[at], [name]: Number.isNaN(number) ? null : number });
    };
    find(".value input", field).addEventListener("input", edit("amount"));
    find(".count input", field).addEventListener("input", edit("count"));
    find(".confidence input", field).addEventListener("input", edit("confidence"));
    find(".slider", field).addEventListener("input", (event) => {
      const factor = Math.pow(10, event.target.valueAsNumber / 100);
      const key = amountKey(this.targets[at]);
      this.set(at, { ...this.targets[at], [key]: round(this.bases[at] * factor, 3) });
    });
    find(`#group-${at} .variants`).append(field);
    return field;
  }

  set(at, target) {
    this.targets[at] = target;
    this.showTarget(at);
    this.design();
  }

  reset() {
    this.targets = state.groups.map(readSpecTarget);
    this.bases = this.targets.map((target) => target[amountKey(target)]);
    this.designNow();
  }

  // Relax all targets by one factor, so that they fit what may be spent.
  fit() {
    this.targets = this.targets.map((target) => relax(target, this.factor));
    this.designNow();
  }

  designNow() {
    this.targets.forEach((_, at) => this.showTarget(at));
    this.design();
  }

  showTarget(at) {
    const field = this.fields[at], target = this.targets[at], group = state.groups[at];
    const key = amountKey(target), amount = target[key];
    const which = variants.length > 1 && !document.body.classList.contains("single")
      ? `${group.name}, variant ${this.name}` : group.name;
    find("legend", field).textContent = which;
    find("select", field).value = target.kind;
    show(find(".kind", field), kindsOf(group).length > 1);
    find(".value span", field).textContent = FIELDS[target.kind];
    show(find(".count", field), target.kind === "relative");
    show(find(".confidence", field), ["moe", "relative"].includes(target.kind));
    const inputs = { ".value input": amount, ".count input": target.count,
      ".confidence input": target.confidence };
    for (const [selector, value] of Object.entries(inputs)) {
      const input = find(selector, field);
      if (input !== document.activeElement || input.valueAsNumber !== value) {
        if (value !== null) input.value = value;
      }
    }
    const slider = find(".slider", field);
    slider.setAttribute("aria-label", `${FIELDS[target.kind]} of ${which}`);
    if (amount > 0) {
      slider.value = Math.round(100 * Math.log10(amount / this.bases[at]));
      slider.setAttribute("aria-valuetext", format(amount));
    }
    this.showFault(at, "");
  }

  showFault(at, message) {
    const field = this.fields[at], fault = find(".fault", field);
    fault.textContent = message;
    show(fault, message !== "");
    field.classList.toggle("faulty", message !== "");
    for (const input of field.querySelectorAll("input")) {
      if (message) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  }

  design() {
    if (this.request) this.request.abort();
    const request = this.request = new AbortController();
    this.cost.classList.add("stale");
    this.alert("");
    const slow = setTimeout(() => show(find(".working", this.cost), true), PATIENCE);
    find("progress", this.cost).removeAttribute("value"); // until the share is known
    const end = () => {
      clearTimeout(slow);
      if (this.request !== request) return;
      this.request = null;
      show(find(".working", this.cost), false);
    };
    this.receive(request.signal)
      .catch((error) => {
        if (error.name === "AbortError") return;
        this.alert("fitplug no longer answers. Start fitplug explore again.");
      })
      .finally(end);
  }

  async receive(signal) {
    const answer = await post("design", { targets: this.targets.map(toSend) }, signal);
    if (!answer.ok) {
      const refused = await readRefusal(answer);
      if (refused.group === undefined) this.alert(refused.error);
      else this.showFault(refused.group, refused.error);
      return;
    }
    for await (const message of readLines(answer.body)) {
      if (signal.aborted) return;
      if (message.outcome) this.showOutcome(message.outcome);
      else if (message.error) this.alert(message.error);
      else {
        if (message.share) find("progress", this.cost).value = message.share;
        if (message.between) this.showBetween(message.between);
      }
    }
  }

  cancel() {
    if (this.request) this.request.abort();
    this.alert("Cancelled. The cost shown is for the previous targets. Change a target to design again.");
    if (this.outcome) this.showCost(this.outcome);
    this.cost.classList.add("stale");
    find(".write", this.cost).focus();
  }

  alert(message) {
    const box = find(".alert", this.cost);
    box.textContent = message;
    show(box, message !== "");
  }

  showBetween([low, high]) {
    this.showNumber(`${formatDown(low)} to ${formatUp(high)}`);
  }

  // The number, and again in the short line that small screens keep in view.
  showNumber(text) {
    find(".number", this.cost).textContent = this.short = text;
    const shown = variants.filter((variant) => !variant.cost.hidden);
    find("#short").textContent = shown.map(({ name, short }) =>
      `${shown.length > 1 ? name : "rho"} ${short}`).join("  ·  ");
  }

  showOutcome(outcome) {
    this.outcome = outcome;
    this.cost.classList.remove("stale");
    this.showCost(outcome);
    outcome.groups.forEach((got, at) => this.showPrice(at, got, outcome.rho));
    showDifferences();
    speak(this);
  }

  showCost(outcome) {
    this.showNumber(formatUp(outcome.rho));
    const [epsilon, delta] = find(".epsilon", this.cost).children;
    epsilon.textContent = `epsilon ${outcome.epsilon}`;
    delta.textContent = `at delta ${state.delta}`;
    find(".gap", this.cost).textContent = `${outcome.gap}.`;
    this.showLedger(outcome.rho);
  }

  showLedger(rho) {
    const { budget, spend, max_rho: most } = state, limits = [];
    const box = find(".ledger", this.cost);
    show(box, true);
    show(find(".bar", box), budget !== null);
    if (budget) {
      const percent = (x) => `${100 * Math.min(Math.max(x / budget.total, 0), 1)}%`;
      find(".spent", box).style.width = percent(budget.spent);
      find(".charge", box).style.width = percent(Math.min(rho, budget.remaining));
      const left = budget.remaining - rho;
      find("p", box).textContent = `Ledger: ${formatUp(budget.spent)} of ${format(budget.total)} spent, `
        + (left < 0 ? `${formatDown(budget.remaining)} left.`
          : `this plan costs ${formatUp(rho)} and leaves ${formatDown(left)}.`);
      limits.push([budget.remaining, "the ledger's remaining budget"]);
    } else find("p", box).textContent = state.budget_note;
    if (most !== null) limits.push([most, "the spec's max_rho"]);
    const [least, what] = limits.reduce((a, b) => (b[0] < a[0] ? b : a), [Infinity, ""]);
    const isOver = rho > least, over = find(".over", this.cost), fit = find(".fit", this.cost);
    this.cost.classList.toggle("is-over", isOver);
    show(over, isOver || spend !== null);
    show(fit, isOver && least > 0);
    if (isOver) {
      // Designs end within a gap of the least rho, which the factor allows for.
      this.factor = roundUp(Math.sqrt(rho / least * 1.0005), 4);
      over.textContent = `Over ${what} of ${formatDown(least)} by ${formatUp(rho - least)}.`
        + (least > 0 ? " Relax some targets, or all of them at once:" : " Raise the budget.");
      fit.textContent = `Multiply all by ${this.factor}`;
    } else if (spend !== null) {
      over.textContent = `The spec spends rho = ${format(spend)}: every std and margin is multiplied by `
        + `${format(Math.sqrt(rho / spend))}.`;
    }
  }

  showPrice(at, got, rho) {
    const field = this.fields[at], price = find(".price", field);
    const saving = find(".saving", field), isPriced = got.price !== null;
    show(find(".shares", field), isPriced);
    find(".meter span", field).style.width = `${100 * Math.min(Math.max(got.price ?? 0, 0), 1)}%`;
    price.textContent = isPriced ? `${formatPercent(got.price)} of rho` : "";
    saving.textContent = !isPriced ? "No price: the cost also depends on the weight of the total error."
      : got.saves < NOTHING ? "A 10% larger std saves almost nothing."
        : `A 10% larger std saves at most rho ${formatUp(got.saves * rho)} (${formatPercent(got.saves)}).`;
    const { queries } = state.groups[at];
    const all = queries === 1 ? "exactly at the target"
      : `${got.binding.toLocaleString("en")} of ${queries.toLocaleString("en")} exactly at their target`;
    find(".achieved", field).textContent = `Achieved std ${got.achieved}`
      + (got.binding > 0 ? `, ${all}.` : got.std_ratio < 0.99 ? ", better than the target." : ".");
  }

  describe() {
    const { rho, epsilon, gap } = this.outcome;
    const name = variants.length > 1 && isComparing() ? `Variant ${this.name}: ` : "";
    return `${name}rho ${formatUp(rho)}, epsilon ${epsilon}. ${gap}.`;
  }
}

const isComparing = () => !document.body.classList.contains("single");

// Screen readers hear the costs after changes have ended, not while a slider moves.
let speaking;
function speak(variant) {
  clearTimeout(speaking);
  const over = find(".over", variant.cost);
  speaking = setTimeout(() => {
    find("#spoken").textContent = variant.describe() + (over.hidden ? "" : ` ${over.textContent}`);
  }, 400);
}

function post(path, content, signal) {
  const headers = { "Content-Type": "application/json" };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(content), signal });
}

async function readRefusal(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    return { error: text };
  }
}

async function* readLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (held + value).split("\n");
    held = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

const sayMore = (ratio) => (ratio < 2 ? formatPercent(ratio - 1) : `${format(ratio)} times`);

// How variant B differs from A: in its cost, and group by group in the std that is allowed.
function showDifferences() {
  const [a, b] = variants;
  if (!b || !a.outcome || !b.outcome) return;
  const change = b.outcome.rho / a.outcome.rho - 1;
  const isSame = Math.abs(change) < 5e-4;
  const words = change < 0 ? `${formatPercent(-change)} less rho` : `${formatPercent(change)} more rho`;
  find("h2", b.cost).textContent = isSame ? "Variant B" : `Variant B: ${words} than A`;
  b.outcome.groups.forEach((got, at) => {
    const ratio = got.allowed_std / a.outcome.groups[at].allowed_std;
    const differs = Math.abs(ratio - 1) > 1e-6, note = find(".difference", b.fields[at]);
    b.fields[at].classList.toggle("differs", differs);
    note.textContent = ratio > 1 ? `▲ ${sayMore(ratio)} looser than A` : `▼ ${sayMore(1 / ratio)} tighter than A`;
    show(note, differs);
  });
}

function compare() {
  if (variants.length < 2) {
    const b = new Variant("B");
    b.targets = variants[0].targets.map((target) => ({ ...target }));
    b.bases = [...variants[0].bases];
    variants.push(b);
  }
  const isSingle = document.body.classList.toggle("single");
  find("#compare").setAttribute("aria-pressed", String(!isSingle));
  find("h2", variants[0].cost).textContent = isSingle ? "Privacy cost" : "Variant A";
  show(variants[1].cost, !isSingle);
  for (const field of variants[1].fields) show(field, !isSingle);
  variants[0].targets.forEach((_, at) => variants[0].showTarget(at));
  if (!isSingle) variants[1].designNow();
}

// Writing a spec: never over another file without asking.
let written;
function openWriting(variant) {
  written = variant;
  const which = isComparing() ? `the targets of variant ${variant.name}` : "these targets";
  find("#writing-what").textContent = `Writes a copy of ${state.name} to the same folder, with ${which}. `
    + "Comments and order are kept.";
  find("#file-name").value = state.suggested;
  sayWritten("", false);
  find("#writing").showModal();
  find("#file-name").select();
}

function sayWritten(message, mayReplace) {
  find("#writing-said").textContent = message;
  show(find("#do-replace"), mayReplace);
}

async function write(replace) {
  const name = find("#file-name").value.trim();
  const content = { name, replace, targets: written.targets.map(toSend) };
  let answer;
  try {
    answer = await post("write", content);
  } catch {
    sayWritten("fitplug no longer answers. Start fitplug explore again.", false);
    return;
  }
  const said = await readRefusal(answer);
  if (answer.ok) {
    sayWritten(`Wrote ${said.written.join(" and ")}. Next: fitplug run ${name}`, false);
    find("#close-writing").focus();
  } else {
    sayWritten(said.error, said.exists === true);
  }
}

function buildGroups() {
  state.groups.forEach((group, at) => {
    const article = clone("group");
    article.id = `group-${at}`;
    find("h3", article).textContent = group.name;
    const queries = group.queries === 1 ? "1 query" : `${group.queries.toLocaleString("en")} queries`;
    const what = group.quantity === "rows" ? "" : ` of the ${group.quantity}`;
    find("p", article).textContent = `${queries}${what}. Spec: ${group.described}`;
    find("#groups").append(article);
  });
}

async function start() {
  const answer = await fetch("state");
  state = await answer.json();
  document.title = `${state.name}: targets and their privacy cost`;
  find("#spec").textContent = state.name;
  find("#unit").textContent = ` · ${state.unit}`;
  document.body.classList.add("single");
  buildGroups();
  variants.push(new Variant("A"));
  find("h2", variants[0].cost).textContent = "Privacy cost";
  variants[0].designNow();
  find("#compare").addEventListener("click", compare);
  find("#writing form").addEventListener("submit", (event) => {
    event.preventDefault();
    write(false);
  });
  find("#do-replace").addEventListener("click", () => write(true));
  find("#close-writing").addEventListener("click", () => find("#writing").close());
}

start();
