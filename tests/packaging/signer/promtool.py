"""Runs promtool, the checker of Prometheus."""

import json
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.controlplane import provide


class PromtoolFailed(Exception):
    """Promtool found a mistake; the text is its output."""


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    """Run promtool and return its stdout. Raises `PromtoolFailed`: it ended with an error."""
    done = subprocess.run(
        [provide.tool("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PromtoolFailed(done.stdout + done.stderr)
    return done.stdout


def require_firing(
    rules: Path, recorded: str, recorded_at: datetime, alert: str, **labels: str
) -> None:
    """Let promtool evaluate an alert on metrics that stay as they were recorded, for 90 minutes.

    `recorded` is what a signer answered, empty if it did not. Raises `PromtoolFailed`: the alert
    does not fire for these labels.
    """
    series = [
        {
            "series": f"{sample.name}{{{_selector(sample.labels)}}}",
            "values": f"{_value(sample, recorded_at)}x90",
        }
        for family in text_string_to_metric_families(recorded)
        if family.type == "gauge"
        for sample in family.samples
    ]
    wanted = _selector({"alertname": alert, "alertstate": "firing", **labels})
    firing = {"expr": f"group(ALERTS{{{wanted}}})", "eval_time": "90m"}
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{**firing, "exp_samples": [{"labels": "{}", "value": 1}]}],
    }
    document = {"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [test]}
    file = rules.with_name("recorded.yaml")
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    promtool("test", "rules", file)


def _value(sample: Sample, recorded_at: datetime) -> float:
    """Return a value. The clock of promtool begins with 0, so times are relative to it."""
    is_time = sample.name.endswith("_not_after_seconds")
    return sample.value - recorded_at.timestamp() if is_time else sample.value


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
