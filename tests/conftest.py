"""What holds for all tests: how Hypothesis looks for examples, and the engines of the fan-out."""

import pytest
from hypothesis import HealthCheck, settings

from mdserver.config import FanoutEngine
from mdserver.server.clients import flusher
from tests.server.native import ENGINES, usable

# A busy machine is no bug: time is measured by benchmarks, never by a test.
settings.register_profile(
    "mdserver", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("mdserver")


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.value)
def fanout_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FanoutEngine:
    """Each engine that can be used here, in force for a single client as well."""
    engine: FanoutEngine = request.param
    usable(engine)
    monkeypatch.setattr(flusher, "TOGETHER_LEAST", 1)
    return engine
