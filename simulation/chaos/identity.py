"""What makes the identity of a cluster or journal, and what a start with another one has to say."""

from collections.abc import Mapping, Sequence

from attrs import frozen


@frozen
class Change:
    """Parameters of another identity. `named`: what the refusal has to name."""

    name: str
    parameters: Mapping[str, str]
    named: Sequence[str]


def changes(peers: Sequence[str], groups: int, elsewhere: str) -> list[Change]:
    """Every parameter of the identity of a seed with a journal, changed; `elsewhere` is a folder
    that nobody uses.
    """
    listed = ", ".join(peers)
    turned = ", ".join(reversed(peers))
    stranger = "127.0.0.1:1"
    return [
        Change(
            "groups",
            {"ClusterSubjectGroups": str(2 * groups)},
            (f"ClusterSubjectGroups = {groups}", f"ClusterSubjectGroups = {2 * groups}"),
        ),
        Change(
            "order", {"ClusterMembers": turned}, ("the order of ClusterMembers", listed, turned)
        ),
        Change(
            "fewer",
            {"ClusterSeedMemberCount": "1"},
            (f"{len(peers)} seeds", "1 seed", "ClusterSeedMemberCount"),
        ),
        Change(
            "more",
            {
                "ClusterMembers": f"{listed}, {stranger}, 127.0.0.1:2",
                "ClusterSeedMemberCount": str(len(peers) + 2),
            },
            (f"{len(peers)} seeds", f"{len(peers) + 2} seeds"),
        ),
        Change(
            "mode",
            {"ClusterDeliveryMode": "Standard"},
            ("ClusterDeliveryMode = Guaranteed", "ClusterDeliveryMode = Standard"),
        ),
        Change("alone", {"ClusterMembers": ""}, ("a member of a cluster", "a single server")),
        Change(
            "fsync",
            {"JournalFsync": "interval"},
            ("JournalFsync = commit", "JournalFsync = interval"),
        ),
        Change("no journal", {"Journal": "off"}, ("Journal = on", "Journal = off")),
        Change(
            "journal", {"JournalFolder": f"{elsewhere}/journal"}, ("JournalFolder", "has no log")
        ),
        Change(
            "votes",
            {"ClusterMemberCoordinationFolder": elsewhere},
            ("no vote file", elsewhere, "ClusterMemberCoordinationFolder"),
        ),
        Change(
            "address",
            {"ClusterMemberListen": stranger, "ClusterMembers": ", ".join([*peers[1:], stranger])},
            ("ClusterMemberListen", stranger),
        ),
    ]
