------------------------------- MODULE PreVote --------------------------------
(* Before a member stands for an epoch it asks the seeds whether they would     *)
(* promise. Nothing changes at a seed that would, so the log of the group never *)
(* depends on it: each behaviour is one of GroupLog (`IsOneOfTheLog`). What it  *)
(* is for is service. The coordinator of epoch 1 serves, and seeds see it but   *)
(* for some that are blind; another member stands for epoch 2, which hears only *)
(* some of the seeds. It deposes the first one only if a majority of all seeds  *)
(* neither sees that one nor is out of its reach.                               *)
EXTENDS GroupLog

VARIABLES
    blind,      \* seeds that do not see the coordinator of epoch 1
    reach,      \* seeds that the candidate of epoch 2 hears, and that hear it
    granted     \* seeds that would promise epoch 2

preVoteVars == <<logVars, blind, reach, granted>>

PInit ==
    /\ Init
    /\ blind \in SUBSET Seed /\ reach \in SUBSET Seed
    /\ granted = {}

Served == phase[1] = "active" /\ \A s \in Seed : accepted[s] >= 1
Sees(s) == s \notin blind

Grant(s) ==
    /\ Served /\ s \in reach /\ s \notin granted
    /\ status[s] = "normal" /\ promised[s] < 2
    /\ Rule("seeds that see a coordinator grant nothing") => ~ Sees(s)
    /\ granted' = granted \cup {s}
    /\ IF Rule("a pre-vote is no promise")
       THEN UNCHANGED logVars
       ELSE /\ promised' = [promised EXCEPT ![s] = 2]
            /\ UNCHANGED <<incarnation, status, log, accepted, epochVars,
                           sent, committed, crashes>>
    /\ UNCHANGED <<blind, reach>>

Stands ==
    /\ Served
    /\ Rule("a majority grants it first") => granted \in Majority

Kept(action) == action /\ UNCHANGED <<blind, reach, granted>>

PNext ==
    \/ \E s \in Seed :
        \/ Kept(Promise(s, 1)) \/ Grant(s)
        \/ Stands /\ s \in reach /\ Kept(Promise(s, 2))
    \/ \E e \in Epoch :
        \/ Kept(Elect(e)) \/ Kept(Activate(e))
        \/ \E p \in Publication : Kept(Publish(e, p))
        \/ \E n \in 1..Len(clog[e]) : Kept(Commit(e, n))
        \/ \E s \in Seed :
            \/ Kept(Sync(s, e)) \/ \E n \in 1..Len(clog[e]) : Kept(Accept(s, e, n))

PSpec == PInit /\ [][PNext]_preVoteVars

\* What pre-votes leave of the log is a behaviour of the log without them.
IsOneOfTheLog == Spec

\* Who cannot be elected, or would depose what a majority sees, has no promise of any seed.
Undisturbed == (blind \cap reach) \notin Majority => \A s \in Seed : promised[s] < 2

NeverDeposed == phase[2] # "active"
===============================================================================
