"""What holds for all tests: how Hypothesis looks for examples, and the engines of the fan-out."""

import ssl
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from mdserver.config import FanoutEngine
from mdserver.server.clients import flusher
from mdserver.server.tls import KeyStore
from tests.server.certificates import make_certificate
from tests.server.layers import Layer
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


@pytest.fixture(params=["TCP", "TLS"])
def layer(request: pytest.FixtureRequest, tmp_path: Path) -> Layer:
    """What clients speak over."""
    if request.param == "TCP":
        return Layer()
    pem = make_certificate(tmp_path / "layer.pem")
    return Layer(ssl.create_default_context(cafile=str(pem)), KeyStore(pem))
