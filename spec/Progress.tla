------------------------------- MODULE Progress -------------------------------
(* That something goes on: with a majority of seeds up, and no more crashes     *)
(* than the bounds have, each publication is committed in the end. Safety needs *)
(* no time; this does. Candidates that follow on each other for ever commit     *)
(* nothing, so the last epoch stands for the one behind which nobody stands any *)
(* more (pre-votes, random delays and longer deadlines are there to bring that  *)
(* about), and only of its steps is it asked that they are taken. The earlier   *)
(* epochs, and the seeds in them, may stop anywhere.                            *)
(*                                                                              *)
(* For safety a message that is lost is one that nobody has read yet. Here it   *)
(* has to be gone: acks are lost with the links on which they were sent.        *)
EXTENDS GroupLog

CONSTANT MaxLost   \* how many links with acks on them may break
VARIABLE lost      \* how many did

Last == MaxEpoch

\* A candidate whose log is not established in time stands again, so no ack of that is missed.
LoseAcks(s) ==
    /\ lost < MaxLost
    /\ phase[Last] = "active"
    /\ \E n \in 1..Len(clog[Last]) : s \in AckedBy(Last, n)
    /\ lost' = lost + 1
    /\ sent' = {m \in sent : ~ (m.kind = "ack" /\ m.from = s /\ m.epoch = Last)}
    /\ UNCHANGED <<seedVars, epochVars, committed, crashes>>

\* The coordinator's heartbeat says what it has committed, and the seed holds more.
AckAgain(s) ==
    /\ phase[Last] = "active"
    /\ status[s] = "normal" /\ accepted[s] = Last /\ promised[s] = Last
    /\ commit[Last] < Len(log[s])
    /\ sent' = sent \cup {AckOf(s, Last, Len(log[s]))}
    /\ UNCHANGED <<seedVars, epochVars, committed, crashes, lost>>

PInit ==
    /\ Init
    /\ lost = 0

PNext ==
    \/ Next /\ UNCHANGED lost
    \/ \E s \in Seed : LoseAcks(s) \/ AckAgain(s)

\* A step that is possible and stays so is taken, each for a reason in the code.
PSpec ==
    /\ PInit
    /\ [][PNext]_<<logVars, lost>>
    /\ \A s \in Seed :
        /\ WF_logVars(Rule("a last candidate asks again") /\ Promise(s, Last))
        /\ WF_logVars(Rule("an elected log goes to all seeds") /\ Sync(s, Last))
        /\ WF_logVars(/\ Rule("entries that were lost are asked for")
                      /\ \E n \in 1..Len(clog[Last]) : Accept(s, Last, n))
        /\ WF_logVars(Rule("a seed that restarted asks for the log") /\ Register(s, Last))
        /\ WF_logVars(Rule("acks that were lost are given again") /\ AckAgain(s))
        /\ WF_logVars(Install(s))
    /\ WF_logVars(Elect(Last))
    /\ WF_logVars(Activate(Last))
    /\ \A p \in Publication :
        WF_logVars(Rule("a publisher repeats what has no answer") /\ Publish(Last, p))
    /\ WF_logVars(\E n \in 1..Len(clog[Last]) : Commit(Last, n))

CommittedInTheEnd ==
    \A p \in Publication : <>(\E c \in committed : c.entry.what = p)

\* A seed that crashed votes again: a later crash of another one leaves a majority.
NormalInTheEnd == \A s \in Seed : <>[](status[s] = "normal")
===============================================================================
