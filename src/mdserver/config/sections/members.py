"""Section: the cluster."""

import enum
from pathlib import Path

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.config.values import Address, MemberPlace


class DeliveryMode(enum.Enum):
    """What the cluster guarantees about delivery."""

    GUARANTEED = "Guaranteed"
    STANDARD = "Standard"


@attrs.frozen(kw_only=True, slots=False)
class Members:
    """Cluster"""

    cluster_members: tuple[MemberPlace, ...] = parameter(
        "ClusterMembers",
        values.places(8900, limits.CLUSTER_MEMBERS_MAX),
        (),
        """The addresses by which the members of the cluster speak to each other, the same list in
        the same order everywhere. The first ones are the seeds with which the cluster begins, see
        `ClusterSeedMemberCount`; further members that are not in the list may join. A member keeps
        the address that it began with as its name: if its machine is replaced by one at another
        address, its entry is `NAME@ADDRESS`. SIGHUP makes a running member take new addresses and
        other members, but no other first seeds: they stay, also when `mdserver cluster add-seed`
        and `remove-seed` have changed who votes. Empty: a single server.""",
        reloadable=True,
    )
    cluster_member_listen: Address | None = parameter(
        "ClusterMemberListen",
        values.optional(values.address(8900), "none"),
        None,
        """This member's own address among `ClusterMembers`, without what follows an `@`: where it
        listens for the others, unless its entry says where it is now.""",
    )
    cluster_member_bind: Address | None = parameter(
        "ClusterMemberBind",
        values.optional(values.address(8900), "none"),
        None,
        """Where this member listens for the others, if that is not the address by which they find
        it: behind a container's published port or a proxy. `*` as the host stands for all
        interfaces.""",
    )
    cluster_password: str = parameter(
        "ClusterPassword",
        values.text(1024),
        "",
        """What members prove to each other that they know, at least 16 characters. It is never
        sent, but anyone who hears a proof can try passwords: `openssl rand -hex 16` makes one. Give
        it by the environment rather than in a file that others may read.""",
        secret=True,
    )
    cluster_member_key_store: tuple[Path, ...] = parameter(
        "ClusterMemberKeyStore",
        values.listed(values.PATH, 2, "one path, or two with a comma between them"),
        (),
        """This member's certificate for links to other members, in PEM: one file with the chain
        and the private key, or `chain.pem, key.pem`. Links are then encrypted, and both sides have
        to show a certificate of `ClusterMemberCertificateAuthority`. Empty: links are not
        encrypted. SIGHUP reads the files again, for new links.""",
    )
    cluster_member_certificate_authority: Path | None = parameter(
        "ClusterMemberCertificateAuthority",
        values.optional(values.PATH, "none"),
        None,
        """The file with the certificates, in PEM, of those who may sign the certificates of
        members: an authority of the cluster's own. The names in a member's certificate do not
        matter. SIGHUP reads the file again.""",
    )
    cluster_delivery_mode: DeliveryMode = parameter(
        "ClusterDeliveryMode",
        values.choice(DeliveryMode),
        DeliveryMode.GUARANTEED,
        """The same on every member. `Guaranteed`: a publication is acknowledged once a majority of
        the seeds holds it, and is never lost while such a majority runs. `Standard`: nobody votes
        and nothing is stored; it is delivered and acknowledged at once, any one member that is left
        goes on, and who loses contact to a member gets snapshots instead of what was missed.""",
    )
    cluster_seed_member_count: int = parameter(
        "ClusterSeedMemberCount",
        values.whole(0, 7),
        0,
        """How many of `ClusterMembers` are seeds, whose majority decides: 3 survives the loss of
        one, 5 of two. 0: three, or five if the list has five members or more. SIGHUP takes a new
        value if the seeds stay the same with it. It stays as it is when `mdserver cluster add-seed`
        or `remove-seed` changes who votes.""",
        reloadable=True,
    )
    cluster_subject_groups: int = parameter(
        "ClusterSubjectGroups",
        values.whole(1, limits.SUBJECT_GROUPS_MAX),
        limits.SUBJECT_GROUPS,
        """Into how many groups the subjects are divided, the same on every member. Each group has
        a coordinator of its own. It cannot be changed while a cluster has vote files.""",
    )
    cluster_member_coordination_folder: Path = parameter(
        "ClusterMemberCoordinationFolder",
        values.PATH,
        Path("cluster"),
        """The folder of the vote file, which a seed must not lose: docs/cluster.md says what to do
        if it does.""",
    )
    client_address: str = parameter(
        "ClientAddress",
        values.text(256),
        "",
        """What clients are told to connect to when another member sends them here. Empty: the
        first address of `Listen`.""",
    )
