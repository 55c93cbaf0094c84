"""Each commit has seeds of its own, and the same ones whenever it is run."""

from pathlib import Path

from click.testing import CliRunner

from simulation import __main__ as commands
from simulation.fresh import APART, commit_of, first_seed, tenth_of


def test_seeds_of_two_commits_do_not_overlap_and_are_the_same_again() -> None:
    one, other = first_seed("0000001aaaa", 1), first_seed("0000002bbbb", 1)

    assert one == first_seed("0000001cccc", 1)
    assert abs(other - one) >= APART


def test_without_a_repository_the_seeds_are_the_fixed_ones(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    assert first_seed("", 7) == 7
    assert tenth_of("") == 0


def test_every_tenth_has_its_turn() -> None:
    assert {tenth_of(f"{number:07x}") for number in range(20)} == set(range(10))


def test_a_run_says_which_seeds_it_takes() -> None:
    ended = CliRunner().invoke(
        commands.main,
        ["run", "--fresh", "--seeds", "1", "--jobs", "1", "--profile", "disturbed-start"],
    )

    assert ended.exit_code == 0, ended.output
    assert "of commit" in ended.output.splitlines()[0]
