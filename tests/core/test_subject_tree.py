"""The tree of subjects: what a pattern finds, also while the tree changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.subject_tree import SubjectTree
from mdserver.core.subjects import Pattern, parse_interest, segments_of

SEGMENTS = st.sampled_from(["a", "b", "__mdserver__"])
SUBJECTS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda one: "/" + "/".join(one))
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "*", "__mdserver__"]), max_size=3),
    st.sampled_from(["/*", "/**"]),
).map(lambda parts: "".join(f"/{one}" for one in parts[0]) + parts[1])


def pattern(text: str) -> Pattern:
    parsed = parse_interest(text, 1, 9)
    assert parsed is not None
    return parsed


def tree_of(*subjects: str) -> SubjectTree:
    tree = SubjectTree()
    for subject in subjects:
        tree.add(subject)
    return tree


def found(tree: SubjectTree, text: str) -> list[str]:
    return sorted(one for one in tree.search(pattern(text)) if one is not None)


@pytest.mark.parametrize("order", [["/a/b", "/a/b/c"], ["/a/b/c", "/a/b"]])
def test_a_subject_may_be_the_beginning_of_another(order: list[str]) -> None:
    tree = tree_of(*order)
    assert found(tree, "/a/*") == ["/a/b"]
    assert found(tree, "/a/b/*") == ["/a/b/c"]
    assert found(tree, "/a/b/**") == ["/a/b/c"]
    assert found(tree, "/a/b/c/**") == []
    assert found(tree, "/a/b/c/*") == []
    assert found(tree, "/*/**") == ["/a/b", "/a/b/c"]
    assert found(tree, "/q/*") == []


@given(st.sets(SUBJECTS, max_size=12), st.sets(SUBJECTS, max_size=6), PATTERNS)
def test_a_search_finds_what_the_pattern_matches(
    subjects: set[str], removed: set[str], text: str
) -> None:
    tree = tree_of(*sorted(subjects))
    for subject in sorted(subjects & removed):
        tree.remove(subject)
    left, wanted = subjects - removed, pattern(text)
    assert found(tree, text) == sorted(s for s in left if wanted.matches(segments_of(s)))
    assert tree.branches == len({segments_of(subject)[0] for subject in left})


@given(
    st.sets(SUBJECTS, max_size=12),
    st.lists(st.tuples(st.integers(0, 20), SUBJECTS), max_size=6),
    PATTERNS,
)
def test_what_stays_is_found_once_while_the_tree_changes(
    subjects: set[str], changes: list[tuple[int, str]], text: str
) -> None:
    tree, held, stayed = tree_of(*sorted(subjects)), set(subjects), set(subjects)
    results: list[str] = []
    for at, one in enumerate(tree.search(pattern(text))):
        if one is not None:
            assert one in held
            results.append(one)
        for subject in [subject for moment, subject in changes if moment == at]:
            if subject in held:
                tree.remove(subject)
                stayed.discard(subject)
            else:
                tree.add(subject)
            held ^= {subject}
    wanted = pattern(text)
    matching = sorted(s for s in stayed if wanted.matches(segments_of(s)))
    assert sorted(s for s in results if s in stayed) == matching


def test_a_search_looks_at_no_branch_that_its_pattern_does_not_lead_to() -> None:
    tree = tree_of(*(f"/{first}/{n}" for first in "abc" for n in range(10)))
    assert len(list(tree.search(pattern("/a/*")))) == 12  # the root and `/a` besides
    assert len(list(tree.search(pattern("/q/*")))) == 1
