"""Steps of the loops that run while the signer runs."""

import logging
from collections.abc import Callable

from common.errors import AttestationError
from signer.model import ClusterKey

_logger = logging.getLogger(__name__)


def run_step(step: Callable[[], None], name: str, cluster: ClusterKey | None = None) -> bool:
    """Run a step of a loop; log its exception instead of ending the thread; return success."""
    fields: dict[str, object] = {"step": name}
    if cluster is not None:
        fields |= cluster.log_fields()
    try:
        step()
    except AttestationError as e:
        fields |= {"message": e.message, "detail": e.detail}
        _logger.warning("step failed", extra={"fields": fields})
    except Exception:
        _logger.exception("step failed", extra={"fields": fields})
    else:
        return True
    return False
