"""Checks that the write-ahead log in the journal's folder is this server's, before any write.

A start with a wrong parameter is refused, and the message names the parameter. Nothing has changed
then, so it is enough to set the parameter back.
"""

from mdserver.cluster.identity import Identity
from mdserver.cluster.wal import WalBegun
from mdserver.config import Config, JournalFsync
from mdserver.errors import StartError
from mdserver.journal.segments import identified
from mdserver.journal.wal_lines import LOG, beginning
from mdserver.server.member import Member
from mdserver.server.ownership import unusable_folder


def check_log(config: Config, member: Member | None) -> None:
    """Raise StartError if there is a log that this start would not use, or if one is missing.

    A log that would be ignored may hold what this server has acknowledged.
    """
    if member is None and not config.journal:
        return  # nothing uses the folder, and this process may not be allowed to read it
    folder = config.journal_folder / LOG
    try:
        begun = beginning(folder)
    except OSError as error:
        raise unusable_folder(
            "JournalFolder", config.journal_folder, error, config.run_as_user
        ) from None
    if begun is not None:
        check_begun(config, member, begun)
    if member is None or member.file is None:
        return
    if member.votes.recorded:
        if not folder.is_dir():
            raise _another_log(config, member, "has no log")
        here, there = identified(folder), member.votes.log
        if there and here is not None and here.identifier != there:
            raise _another_log(config, member, f"has the log {here.identifier}")
    if begun is None:
        return
    if member.recorded and not member.votes.recorded:
        is_on = "on" if config.journal else "off"
        now = f"JournalFsync = {config.journal_fsync.value}" if config.journal else "Journal = off"
        raise StartError(
            f"{folder} holds what this seed acknowledged with Journal = on and JournalFsync ="
            f" {JournalFsync.COMMIT.value}. With Journal = {is_on} and {now} it would not be used."
            " Set it back; or, if the other seeds hold the same, move that folder away"
        )
    if not member.file.found and member.file.damage is None:
        raise StartError(
            f"There is no vote file {member.file.path}, and {folder} was written by this seed,"
            " which had one. Set ClusterMemberCoordinationFolder back; or, if that file is lost,"
            f" move {folder} away, and have the seed taken back with `mdserver cluster readmit"
            f" {member.cluster.me}`"
        )


def _another_log(config: Config, member: Member, what: str) -> StartError:
    assert member.file is not None
    return StartError(
        f"The vote file {member.file.path} says that this seed has a log, {member.votes.log}, and"
        f" JournalFolder = {config.journal_folder} {what}. Set it back; or, if the journal is lost,"
        " move the vote file away too, and have the seed taken back with `mdserver cluster readmit"
        f" {member.cluster.me}`"
    )


def check_begun(config: Config, member: Member | None, begun: WalBegun) -> None:
    """Raise StartError if a log belongs to another member or cluster."""
    if member is None:
        identity = Identity(config.node_name, (), config.cluster_subject_groups)
    else:
        identity = member.identity
    differs = identity.differs(begun.member, begun.cluster, begun.groups, begun.seeds)
    if differs is not None:
        folder = config.journal_folder / LOG
        raise StartError(
            f"JournalFolder = {config.journal_folder}: its log belongs to another member or"
            f" cluster: {differs}. Set it back; or, to start without what it holds, move {folder}"
            " away"
        )
