"""The table is sound: what an operator reads about a parameter is true."""

import pytest

from mdserver.config import PARAMETERS, Parameter


@pytest.mark.parametrize("row", PARAMETERS.values(), ids=list(PARAMETERS))
def test_a_default_is_a_value_that_reads_back(row: Parameter) -> None:
    assert row.kind.parse(row.kind.show(row.default)) == row.default


@pytest.mark.parametrize("row", PARAMETERS.values(), ids=list(PARAMETERS))
def test_a_meaning_is_a_sentence_that_names_only_known_parameters(row: Parameter) -> None:
    assert row.meaning.endswith(".")
    assert row.meaning[0].isupper()
    quoted = row.meaning.split("`")[1::2]
    names = [word.split(" = ")[0] for word in quoted if " = " in word]
    assert [name for name in names if name not in PARAMETERS] == []


def test_environment_variables_are_distinct() -> None:
    variables = {row.environment for row in PARAMETERS.values()}
    assert len(variables) == len(PARAMETERS)
    assert PARAMETERS["BufferLimit.Send"].environment == "MDSERVER_BUFFERLIMIT_SEND"


def test_secrets_are_hidden() -> None:
    row = PARAMETERS["EntitlementAllowToken"]
    assert row.show("s3cret") == "(hidden)"
    assert row.show("") == ""
