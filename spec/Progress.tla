------------------------------- MODULE Progress -------------------------------
(* That something goes on: with a majority of seeds up, and no more crashes     *)
(* than the bounds have, each publication is committed in the end. Safety needs *)
(* no time; this does. Candidates that follow on each other for ever commit     *)
(* nothing, so the last epoch stands for the one behind which nobody stands any *)
(* more (pre-votes, random delays and longer deadlines are there to bring that  *)
(* about), and only of its steps is it asked that they are taken. The earlier   *)
(* epochs, and the seeds in them, may stop anywhere.                            *)
EXTENDS GroupLog

Last == MaxEpoch

\* A step that is possible and stays so is taken, each for a reason in the code.
PSpec ==
    /\ Spec
    /\ \A s \in Seed :
        /\ WF_logVars(Rule("a last candidate asks again") /\ Promise(s, Last))
        /\ WF_logVars(Rule("an elected log goes to all seeds") /\ Sync(s, Last))
        /\ WF_logVars(/\ Rule("entries that were lost are asked for")
                      /\ \E n \in 1..Len(clog[Last]) : Accept(s, Last, n))
        /\ WF_logVars(Rule("a seed that restarted asks for the log") /\ Register(s, Last))
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
