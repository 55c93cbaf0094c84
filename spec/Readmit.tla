------------------------------- MODULE Readmit --------------------------------
(* A seed that lost its vote file, and the operator's command that takes it     *)
(* back. It forgot what it promised, so it may not vote until an epoch that the *)
(* *other* seeds elected, with a PREPARE that named this very loss, hands it    *)
(* the log; and promises it gave before the loss may not count any more: those  *)
(* who promised for the readmission carry a note of its new incarnation.        *)
EXTENDS GroupLog

CONSTANTS MaxLoss

VARIABLES
    note,       \* note[q][s]: the incarnation of s that q was told to require (vote file)
    electors,   \* the promises that each epoch was elected with
    losses

noteVars == <<note, electors, losses>>
readmitVars == <<logVars, noteVars>>

RInit ==
    /\ Init
    /\ note = [q \in Seed |-> [s \in Seed |-> 0]]
    /\ electors = [e \in Epoch |-> {}]
    /\ losses = 0

Lost == {s \in Seed : status[s] = "lost"}

\* `named`: the lost seeds whose readmission this PREPARE carries.
RPromise(s, e) == \E named \in SUBSET Lost :
    LET noted == [t \in Seed |-> IF t \in named THEN incarnation[t] ELSE note[s][t]]
        carried == IF Rule("promises carry notes") THEN noted ELSE [t \in Seed |-> 0]
    IN  /\ PromiseWith(s, e, [note |-> carried, named |-> named])
        /\ note' = [note EXCEPT ![s] = noted]
        /\ UNCHANGED <<electors, losses>>

RElect(e) == \E votes \in SUBSET Promises(e) :
    /\ \A m, told \in votes : m.inc >= told.more.note[m.from]
    /\ ElectFrom(e, votes)
    /\ electors' = [electors EXCEPT ![e] = votes]
    /\ UNCHANGED <<note, losses>>

LoseVote(s) ==
    /\ losses < MaxLoss
    /\ status[s] = "normal" /\ Normal \ {s} \in Majority
    /\ losses' = losses + 1
    /\ incarnation' = [incarnation EXCEPT ![s] = @ + 1]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ promised' = [promised EXCEPT ![s] = 0]
    /\ status' = [status EXCEPT ![s] = "lost"]
    /\ UNCHANGED <<epochVars, sent, committed, crashes, note, electors>>

Readmit(s, e) ==
    /\ status[s] = "lost"
    /\ Rule("readmission elects anew") =>
            \A m \in electors[e] : m.from # s /\ s \in m.more.named
    /\ HandLog(s, e)
    /\ UNCHANGED noteVars

Unnoted(action) == action /\ UNCHANGED noteVars

RNext ==
    \/ \E e \in Epoch :
        \/ RElect(e)
        \/ Unnoted(Activate(e))
        \/ \E p \in Publication : Unnoted(Publish(e, p))
        \/ \E n \in 1..Len(clog[e]) : Unnoted(Commit(e, n))
        \/ \E s \in Seed :
            \/ RPromise(s, e)
            \/ Unnoted(Sync(s, e)) \/ Unnoted(Register(s, e)) \/ Readmit(s, e)
            \/ \E n \in 1..Len(clog[e]) : Unnoted(Accept(s, e, n))
    \/ \E s \in Seed : Unnoted(Crash(s)) \/ Unnoted(Install(s)) \/ LoseVote(s)

RSpec == RInit /\ [][RNext]_readmitVars

NeverReadmitted ==
    ~ \E s \in Seed : losses = 1 /\ crashes = 0 /\ incarnation[s] = 1
        /\ status[s] = "normal" /\ \E c \in committed : c.epoch = accepted[s]
===============================================================================
