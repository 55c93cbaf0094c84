"""The benchmark of the audit, small: its tables are those of an archive, its faults are found."""

from pathlib import Path
from typing import Any

import pytest

from mdserver.bench import audit
from mdserver.bench.processes import BenchError
from mdserver.pipeline.audit.job import run_audit

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


def test_the_audit_names_the_faults_of_the_load(spark: Any, tmp_path: Path) -> None:
    load = audit.AuditLoad(messages=audit.SUBJECTS * audit.RANGES, sessions=2)
    receipts = audit.write_receipts(tmp_path, load, audit.write_messages(tmp_path, load))
    found = run_audit(spark, tmp_path, None)
    audit.check(found, receipts)
    with pytest.raises(BenchError, match="the audit found"):
        audit.check(found, receipts + 1)
