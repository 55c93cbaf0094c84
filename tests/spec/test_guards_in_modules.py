"""Each guard of the code is in the specification, or docs/proof.md names it as one that is not."""

from pathlib import Path

from mdserver.cluster.guards import Guard
from spec import tlc

PROOF = Path(__file__).parents[2] / "docs" / "proof.md"

MODELLED = {
    Guard.PREPARE_PROMISED: ("GroupLog", "e > promised[s]"),
    Guard.PREPARE_NOT_VOTING: ("GroupLog", "recover before voting"),
    Guard.PREPARE_READMITS: ("Readmit", "m.from # s"),
    Guard.PRE_VOTE_LED: ("PreVote", "seeds that see a coordinator grant nothing"),
    Guard.LOG_PROMISED: ("GroupLog", "promised[s] <= e /\\ accepted[s] < e"),
    Guard.LOG_OLDER: ("GroupLog", "promised[s] <= e /\\ accepted[s] < e"),
    Guard.LOG_COLD_UNPROMISED: ("ColdStart", "a cold log is for who promised it"),
    Guard.LOG_UNREGISTERED: ("GroupLog", "m.inc = incarnation[s]"),
    Guard.ENTRIES_PROMISED: ("GroupLog", "accepted[s] = e /\\ promised[s] = e"),
    Guard.ENTRIES_NOT_VOTING: ("GroupLog", 'status[s] = "normal" /\\ accepted[s] = e'),
    Guard.ENTRIES_GAP: ("GroupLog", "accepted[s] = e /\\ promised[s] = e"),
    Guard.COMMIT_OLDER: ("Delivery", "no gap in the view"),
    Guard.COMMIT_GAP: ("Delivery", "no gap in the view"),
    Guard.PROMISE_LATE: ("GroupLog", 'phase[e] = "idle"'),
    Guard.PROMISE_LOST: ("Readmit", "promises carry notes"),
    Guard.COLD_INCOMPLETE: ("ColdStart", "every seed attends"),
    Guard.VOTE_OLDER_LIST: ("Relist", "older lists are refused"),
    Guard.VOTE_NEWER_LIST: ("Relist", "newer lists are noted first"),
    Guard.LOG_NEWER_LIST: ("Relist", "newer lists are noted first"),
    Guard.LOG_OLDER_LIST: ("Relist", "older lists are refused"),
    Guard.NEXT_UNSETTLED: ("Relist", "settled before the next"),
    Guard.NEXT_NAMED: ("Relist", "a next list is named once"),
    Guard.ACK_EPOCH: ("GroupLog", "m.from = s /\\ m.epoch = e"),
    Guard.ACK_INCARNATION: ("GroupLog", "acks are fenced"),
    Guard.REGISTER_LOST: ("Readmit", "readmission elects anew"),
    Guard.SEED_PROMISED_NEWER: ("GroupLog", 'status[s] = "recovering" /\\ promised[s] <= e'),
    Guard.NUMBER_GAP: ("GroupLog", "numbers have no gaps"),
    Guard.NUMBER_TAKEN: ("GroupLog", "a repeat is no new entry"),
    Guard.REPEAT_UNCOMMITTED: ("Delivery", "acknowledged at commit"),
    Guard.ACK_UNSYNCED: ("Restored", "an ack waits for the disk"),
    Guard.ANSWER_UNSTORED: ("Candidates", "the vote file is written first"),
}
"""Guards, the module that has each, and what stands for it there."""


def test_the_modules_have_what_stands_for_guards() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in tlc.MODULES.glob("*.tla")}

    assert [
        guard.name for guard, (module, text) in MODELLED.items() if text not in texts[module]
    ] == []


def test_the_proof_names_the_guards_that_no_module_has() -> None:
    text = PROOF.read_text(encoding="utf-8")
    named = text.partition("### Guards that the specification lacks")[2].partition("\n#")[0]

    assert {guard.name for guard in Guard if f"`{guard.name}`" in named} == {
        guard.name for guard in Guard if guard not in MODELLED
    }
