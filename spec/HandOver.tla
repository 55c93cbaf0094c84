------------------------------- MODULE HandOver -------------------------------
(* A coordinator gives its group to another member in order: it asks that one   *)
(* to stand for the next epoch, as in any election, and goes on taking and      *)
(* committing publications until it learns of that epoch. (There is no other    *)
(* end to it: the message may be lost, or the other member may not be elected.) *)
(* The rule that is switched off in the mutant is the election: a successor     *)
(* that starts from the log it was handed, without asking the seeds, while its  *)
(* predecessor goes on.                                                         *)
EXTENDS GroupLog

VARIABLES handed    \* epochs whose coordinator asked another member to stand

handVars == <<logVars, handed>>

HInit == Init /\ handed = {}

\* Nothing of the log changes. What it does not commit, the election takes over or not.
Hand(e) ==
    /\ phase[e] = "active" /\ e \notin handed
    /\ handed' = handed \cup {e}
    /\ UNCHANGED logVars

Shortcut(e) ==
    /\ ~ Rule("a hand-over elects")
    /\ e + 1 \in Epoch /\ phase[e] = "active" /\ phase[e + 1] = "idle"
    /\ phase' = [phase EXCEPT ![e + 1] = "sync"]
    /\ clog' = [clog EXCEPT ![e + 1] = clog[e]]
    /\ base' = [base EXCEPT ![e + 1] = Len(clog[e])]
    /\ fence' = [fence EXCEPT ![e + 1] = fence[e]]
    /\ UNCHANGED <<seedVars, commit, sent, committed, crashes, handed>>

Same(action) == action /\ UNCHANGED handed

HNext ==
    \/ \E e \in Epoch :
        \/ Hand(e) \/ Shortcut(e)
        \/ Same(Elect(e)) \/ Same(Activate(e))
        \/ \E p \in Publication : Same(Publish(e, p))
        \/ \E n \in 1..Len(clog[e]) : Same(Commit(e, n))
        \/ \E s \in Seed :
            \/ Same(Promise(s, e)) \/ Same(Sync(s, e)) \/ Same(Register(s, e))
            \/ \E n \in 1..Len(clog[e]) : Same(Accept(s, e, n))
    \/ \E s \in Seed : Same(Crash(s)) \/ Same(Install(s))

HSpec == HInit /\ [][HNext]_handVars

NeverHanded == ~ \E e \in handed : \E f \in Epoch : f > e /\ commit[f] > base[f]
===============================================================================
