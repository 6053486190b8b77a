"""A real Prometheus that scrapes one target every second, as a context manager."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import requests
import yaml

from tests.controlplane import provide
from tests.harness import process
from tests.harness.controlplane import HOST

_INTERVAL: Final = "1s"


class Prometheus:
    """Scrapes the metrics of `target` (host and port), and evaluates the rules of a file."""

    def __init__(self, directory: Path, target: str, rules: Path) -> None:
        """Write the configuration."""
        directory.mkdir(parents=True)
        self._log = directory / "prometheus.log"
        self._configuration = directory / "prometheus.yaml"
        self._data = directory / "data"
        self.address = f"{HOST}:{process.free_port()}"
        self._process: Any = None
        configuration = {
            "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
            "rule_files": [str(rules)],
            "scrape_configs": [
                # As the chart's ServiceMonitor.
                {
                    "job_name": "signer",
                    "honor_labels": True,
                    "static_configs": [{"targets": [target]}],
                }
            ],
        }
        self._configuration.write_text(yaml.safe_dump(configuration), encoding="utf-8")

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """Return the series of an expression at this moment."""
        answer: list[Mapping[str, Any]] = self._get("query", query=expression)["result"]
        return answer

    def label_values(self, label: str, match: str) -> list[str]:
        """Return the values of a label in the series of a selector."""
        answer: list[str] = self._get(f"label/{label}/values", **{"match[]": match})
        return answer

    def metric_names(self) -> set[str]:
        """Return the metrics that the target describes, also those without any series."""
        described = self._get("targets/metadata", match_target='{job="signer"}')
        # A description lacks the end of the name of each series.
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        return {
            entry["metric"].removesuffix("_total") + end
            for entry in described
            for end in ends.get(entry["type"], ("",))
        }

    def rules(self) -> list[Mapping[str, Any]]:
        """Return the state of all rules."""
        [group] = self._get("rules")["groups"]
        answer: list[Mapping[str, Any]] = group["rules"]
        return answer

    def _get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        with requests.Session() as session:
            session.trust_env = False
            url = f"http://{self.address}/api/v1/{path}"
            answer = session.get(url, params=parameters, timeout=30)
        if not answer.ok:
            raise ValueError(answer.text)
        return answer.json()["data"]

    def _scraped(self) -> bool:
        try:
            return bool(self.query('up{job="signer"} == 1'))
        except (requests.ConnectionError, ValueError):
            return False

    def __enter__(self) -> Self:
        self._process = process.start(
            [
                provide.tool("prometheus"), f"--config.file={self._configuration}",
                f"--storage.tsdb.path={self._data}", f"--web.listen-address={self.address}",
            ],
            log=self._log,
        )  # fmt: skip
        try:
            process.wait_until_ready(
                self._process, self._scraped, what="the signer is scraped", log=self._log
            )
        except BaseException:
            process.stop(self._process)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process.stop(self._process)
