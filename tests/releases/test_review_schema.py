"""Reviews against the schema of the deployments registry, and the other checks of its records.

The schema is stated here by its facts: the fields, their types, which are required, and the values
of enumerations. They are those of schemas/deployments-schema.yaml in
https://github.com/opendp/deployments-registry-data at commit 3e9c812a924c (July 2026). The checks
beside the schema are those of scripts/check.py and scripts/update_slug.py there. That of URLs needs
the internet, and is left out.
"""

from __future__ import annotations

import copy
import datetime
import re

import numpy as np
import pytest
import yaml
from jsonschema import Draft7Validator

import fitplug as fp
from fitplug.testing.exports import make_release
from fitplug_opendp import release_files
from tests.helpers import people

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}


def one_of(*values):
    return {"type": "string", "enum": list(values)}


def section(fields, required=()):
    """An object that has no other fields."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": fields,
    }


BASIC = {
    "name": TEXT,
    "data_curators": TEXTS,
    "intended_use": TEXT,
    "data_product_type": one_of(
        *("Summary statistics", "Machine learning model", "Dataset", "Synthetic data"),
        *("Interactive API", "SQL queries"),
    ),
    "data_product_region": TEXT,
    "description": TEXT,
    "publication_date": {"type": "string", "format": "date"},
    "data_product_sector": one_of(
        "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"
    ),
}
PARAMETERS = {
    "epsilon": {"type": "number"},
    "delta": {"type": ["number", "string"]},
    "rho": {"type": "number"},
}
DEPLOYMENT = {
    "basic": section(BASIC, set(BASIC) - {"data_product_sector"}),
    "dp_variant": section(
        {
            "variant_name": one_of(
                "Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"
            ),
            "data_domain": TEXT,
            "unprotected_quantities": TEXT,
        }
    ),
    "privacy_loss": section(
        {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "privacy_parameters": section(PARAMETERS),
            "privacy_parameters_details": {},
        }
    ),
    "deployment_model": section(
        {
            "model_name": one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
            "model_name_details": TEXT,
            "actors": TEXT,
            "release_type": one_of("One release", "Many releases"),
            "release_type_details": TEXT,
            "data_source_type": one_of("Static", "Dynamic"),
            "data_source_type_details": {},
            "access_type": one_of("Interactive", "Non-interactive"),
            "access_type_details": TEXT,
        }
    ),
    "accounting": section({"post_processing": TEXT, "composition": TEXT}),
    "implementation": section(
        {
            "preprocessing_and_hyperparameter_tuning": TEXT,
            "mechanisms": TEXT,
            "justification": TEXT,
        }
    ),
    "administrative": section(
        {"sources": TEXT, "notes": TEXT, "registry_authors": TEXTS}, ["registry_authors"]
    ),
}
STATUSES = (
    *("Converted", "Draft", "Pending", "Changes Required", "Approved"),
    *("Approved (Update Requested)", "Approved (Pending)"),
)
RECORD = {
    "url_slug": TEXT,
    "status": one_of(*STATUSES),
    "tier": {"type": "integer", "enum": [1, 2, 3]},
    "deployment": section(DEPLOYMENT, ["basic"]),
}
SCHEMA = section(RECORD, RECORD)


def find_errors(record):
    """The errors of a record, by the validator that the registry uses."""
    validator = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
    return [error.json_path for error in validator.iter_errors(record)]


def clean(text):
    return re.sub(r"\W+", "_", text.lower())


def make_slug(record):
    basic = record["deployment"]["basic"]
    curators = "-".join(basic["data_curators"])
    parts = [clean(basic["name"]), clean(curators), clean(basic["publication_date"].split("-")[0])]
    return "_".join(parts).replace("_", "-")


def list_texts(node):
    if isinstance(node, str):
        return [node]
    nodes = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return [text for one in nodes for text in list_texts(one)]


def release_named(name):
    plan = fp.design(fp.Workload(fp.Domain({name: ["1", "2"]}), [fp.marginal(name, std=2.0)]))
    return fp.Release(plan, np.zeros(plan.strategy.size, dtype=np.int64), plan.rho)


ABOUT = fp.About(
    name="Ages, by sex: Ulm's \u00fc",
    curators=("City of Ulm", "A & B"),
    sector="Government",
    authors=("x",),
    intended_use="First line.\n\nAnother one: with a colon.  \nEnd ",
)
CASES = {
    "people": (people.release, None),
    "all is said": (people.release, ABOUT),
    "public totals": (lambda: make_release("public totals"), ABOUT),
    "sums": (lambda: make_release("sums"), None),
    "backslashes": (lambda: release_named(r"a\b\*"), None),
}


@pytest.fixture(params=CASES)
def text(request, tmp_path):
    """The YAML that the command line writes."""
    make, about = CASES[request.param]
    published = datetime.date(2026, 3, 1)
    record = fp.review(make(), about=about, published=published, versions={"opendp": "0.16"})
    release_files.write_review(tmp_path, record)
    return (tmp_path / release_files.YAML).read_text(encoding="utf-8")


def test_a_review_passes_the_checks_of_the_registry(text):
    record = yaml.load(text, Loader=yaml.Loader)
    assert find_errors(record) == []
    assert record["url_slug"] == make_slug(record)
    # Texts are plain, quoted or literal blocks, and none is folded.
    styles = {token.style for token in yaml.scan(text) if hasattr(token, "style")}
    assert styles <= {None, "|", '"', "'"}
    assert not [one for one in list_texts(record) if re.search(r"\\\\[^()]", one)]
    assert re.fullmatch(r"[a-z0-9_]+\.yaml", release_files.YAML)


def edit(record, path, value):
    """A copy of a record with another value; None removes the field."""
    edited = copy.deepcopy(record)
    node = edited
    for key in path[:-1]:
        node = node[key]
    if value is None:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return edited


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), None),
        (("tier",), 0),
        (("surprise",), "x"),
        (("deployment", "basic", "publication_date"), "1/1/2026"),
        (("deployment", "basic", "publication_date"), datetime.date(2026, 1, 1)),
        (("deployment", "basic", "data_curators"), []),
        (("deployment", "dp_variant", "variant_name"), "zCDP"),
        (("deployment", "privacy_loss", "privacy_parameters", "epsilon"), "1"),
        (("deployment", "administrative", "registry_authors"), None),
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_registry_refuses(path, value):
    """The first five are the examples of records that the registry's own tests refuse."""
    record = fp.review(people.release())
    assert find_errors(record) == []
    assert find_errors(edit(record, path, value))
