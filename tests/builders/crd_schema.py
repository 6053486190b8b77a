"""Objects that a CRD of this project accepts, as values of hypothesis."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import strategies as st

_CRDS: Final = Path(__file__).parents[2] / "packaging/signer/crds"
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIME: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.ASCII
)
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def schema_of(plural: str) -> dict[str, Any]:
    """Return the schema of `spec`."""
    crd = yaml.safe_load((_CRDS / f"{plural}.yaml").read_text(encoding="utf-8"))
    [version] = crd["spec"]["versions"]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def is_date_time(text: str) -> bool:
    """Return whether Kubernetes accepts a text as `date-time` (kube-openapi, strfmt.IsDateTime).

    It looks for a time at the beginning of what is between the first and the second `t`.
    """
    parts = text.lower().split("t")
    date = _DATE.fullmatch(parts[0])
    time = _TIME.fullmatch(parts[1]) if len(parts) > 1 else None
    if date is None or time is None:
        return False
    year, month, day = map(int, date.groups())
    if not 1 <= month <= len(_DAYS) or not 1 <= day <= _DAYS[month - 1]:
        return False
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if (month, day) == (2, 29) and not is_leap:
        return False
    return time[1] <= "23" and time[2] <= "59" and time[3] <= "59"


def date_times() -> st.SearchStrategy[str]:
    """Return texts that Kubernetes accepts as `date-time`, most of them as the signer writes."""
    usual = st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31))  # noqa: DTZ001 # no zone
    date = st.builds(
        "{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(1, 12), st.integers(1, 28)
    )
    time = st.builds(
        "{:02}:{:02}:{:02}{}{}".format,
        *(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59)),
        st.sampled_from(["", ".5", ",5", ".123456789012"]),
        st.sampled_from(["Z", "z", "+01:00", "-99:99"]),
    )
    odd = st.builds(
        "{}{}{}{}".format, date, st.sampled_from("tT"), time, st.sampled_from(["", "T"])
    )
    written = usual.map(lambda value: value.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return written | written | written | odd


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a structural schema accepts, without its CEL rules."""
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            items = values(schema["additionalProperties"])
            return st.dictionaries(st.text(max_size=8), items, max_size=2)
        case "object":
            fields = {name: values(each) for name, each in schema["properties"].items()}
            required = {name: fields.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=fields)
        case "array":
            is_set = schema.get("x-kubernetes-list-type") == "set"
            items = values(schema["items"])
            most = min(schema["maxItems"], 4)
            return st.lists(items, min_size=schema.get("minItems", 0), max_size=most, unique=is_set)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "string":
            return _texts(schema)
    raise AssertionError(schema)


def _texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    least, most = schema.get("minLength", 0), schema.get("maxLength", 4096)
    pattern = re.compile(schema.get("pattern", "").replace("$", r"\Z"), re.ASCII)
    if schema.get("format") == "date-time":
        return date_times().filter(pattern.search)
    if not pattern.pattern:
        return st.text(min_size=least, max_size=min(most, 100))
    return st.from_regex(pattern).filter(lambda text: least <= len(text) <= most)
