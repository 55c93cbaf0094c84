"""What holds for all tests: how Hypothesis looks for examples."""

from hypothesis import HealthCheck, settings

# A busy machine is no bug: time is measured by benchmarks, never by a test.
settings.register_profile(
    "mdserver", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("mdserver")
