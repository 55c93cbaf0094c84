------------------------------- MODULE Delivery -------------------------------
(* What members deliver and what clients see (I7, I8, I10).                     *)
(*                                                                              *)
(* The group's log stands here in the form that GroupLog.tla proves of it:      *)
(* `chosen` grows only at its end, a coordinator's log is what it committed and *)
(* an uncommitted tail, and the tail of a deposed coordinator is taken over or  *)
(* lost. Messages of deposed coordinators may reach a learner at any time.      *)
(* Refines.tla checks that the steps of GroupLog are steps of this module.      *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Learner, Publication, MaxEpoch, MaxJoin, MaxAsk, Off

Rule(name) == name \notin Off
Epoch == 1..MaxEpoch

VARIABLES
    chosen,     \* the committed log
    current,    \* the epoch that a majority of seeds follows
    clog,       \* per epoch: the coordinator's log
    commit,     \* per epoch: how much of it the coordinator says is committed
    view,       \* per learner: what it applied and delivered
    target,     \* per learner: 1 + the position to reach before it serves, 0 while unknown
    owed,       \* per learner: how much was committed as it started, which no member knows
    since,      \* per learner: the epoch that a majority followed then, which none knows either
    ready,      \* per learner: clients may come
    seen,       \* what one client was shown, going from member to member
    told,       \* acknowledgements to publishers: [what, place]
    asked,      \* per epoch: the place behind its log when a number came that follows one that it
                \* lacks, 0 before; and whether that one had been acknowledged
    denied,     \* a publisher was told that a number is missing which had been acknowledged
    joins

started == <<owed, since>>
gaps == <<asked, denied>>
vars == <<chosen, current, clog, commit, view, target, started, ready, seen, told, gaps, joins>>
Min(a, b) == IF a < b THEN a ELSE b
Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a

Init ==
    /\ chosen = <<>> /\ current = 1
    /\ clog = [e \in Epoch |-> <<>>] /\ commit = [e \in Epoch |-> 0]
    /\ view = [l \in Learner |-> <<>>]
    /\ target = [l \in Learner |-> 0] /\ ready = [l \in Learner |-> TRUE]
    /\ owed = [l \in Learner |-> 0] /\ since = [l \in Learner |-> 1]
    /\ seen = <<>> /\ told = {} /\ joins = 0
    /\ asked = [e \in Epoch |-> [at |-> 0, acked |-> FALSE]] /\ denied = FALSE

\* A coordinator that does not know yet that it is deposed goes on appending.
Append1(e, p) ==
    /\ e <= current
    /\ \A k \in DOMAIN clog[e] : clog[e][k].what # p
    /\ clog' = [clog EXCEPT ![e] = Append(@, [epoch |-> e, what |-> p])]
    /\ UNCHANGED <<chosen, current, commit, view, target, started, ready, seen, told, gaps, joins>>

Commit1(e, n) ==
    /\ e = current /\ commit[e] < n
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ chosen' = SubSeq(clog[e], 1, n)
    /\ UNCHANGED <<current, clog, view, target, started, ready, seen, told, gaps, joins>>

\* A later epoch keeps what is chosen and any part of the tail.
Supersede(e, n) ==
    /\ e > current
    /\ n \in Len(chosen)..Len(clog[current])
    /\ current' = e
    /\ clog' = [clog EXCEPT ![e] = SubSeq(clog[current], 1, n)]
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ chosen' = SubSeq(clog[current], 1, n)
    /\ UNCHANGED <<view, target, started, ready, seen, told, gaps, joins>>

\* Acknowledgements from before the next election may come after it: of what was chosen then,
\* and a coordinator may hear so late that its own log is established, too.
CommitLate(e, n) ==
    /\ Rule("a deposed coordinator may commit late")
    /\ e < current /\ commit[e] < n
    /\ Prefix(SubSeq(clog[e], 1, n), chosen)
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ UNCHANGED <<chosen, current, clog, view, target, started, ready, seen, told, gaps, joins>>

BeginLate(e, n) ==
    /\ Rule("a deposed coordinator may begin late")
    /\ e < current /\ clog[e] = <<>> /\ n \in 1..Len(chosen)
    /\ clog' = [clog EXCEPT ![e] = SubSeq(chosen, 1, n)]
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ UNCHANGED <<chosen, current, view, target, started, ready, seen, told, gaps, joins>>

\* A repeat is answered from the table of positions, which covers the tail as well.
Tell(e, k) ==
    /\ k <= IF Rule("acknowledged at commit") THEN commit[e] ELSE Len(clog[e])
    /\ told' = told \cup {[what |-> clog[e][k].what, place |-> k]}
    /\ UNCHANGED <<chosen, current, clog, commit, view, target, started, ready, seen, gaps, joins>>

\* A number comes to a coordinator that lacks the one before. The coordinator may be deposed, and the
\* newer one may have that. So it answers for the gap only once it has committed something that it
\* appended after the number came: as it was not deposed then, the number before was nowhere taken.
Ask(e, p) ==
    /\ e <= current /\ (e = current \/ clog[e] # <<>>)
    /\ asked[e].at = 0 /\ Cardinality({f \in Epoch : asked[f].at > 0}) < MaxAsk
    /\ \A k \in DOMAIN clog[e] : clog[e][k].what # p
    /\ asked' = [asked EXCEPT ![e] =
                    [at |-> Len(clog[e]) + 1, acked |-> \E t \in told : t.what = p]]
    /\ UNCHANGED <<chosen, current, clog, commit, view, target, started, ready, seen, told, denied, joins>>

Refuse(e) ==
    /\ asked[e].at > 0
    /\ Rule("refused at commit") => commit[e] >= asked[e].at
    /\ denied' = (denied \/ asked[e].acked)
    /\ UNCHANGED <<chosen, current, clog, commit, view, target, started, ready, seen, told, asked, joins>>

Learn(l, e, k) ==
    /\ k <= IF Rule("delivered at commit") THEN commit[e] ELSE Len(clog[e])
    /\ IF Rule("no gap in the view") THEN k = Len(view[l]) + 1 ELSE k > Len(view[l])
    /\ view' = [view EXCEPT ![l] = Append(@, clog[e][k])]
    /\ UNCHANGED <<chosen, current, clog, commit, target, started, ready, seen, told, gaps, joins>>

\* A member restarts: its cache is gone. What it has to reach it learns from a coordinator.
Join(l) ==
    /\ joins < MaxJoin
    /\ joins' = joins + 1
    /\ view' = [view EXCEPT ![l] = <<>>]
    /\ ready' = [ready EXCEPT ![l] = FALSE]
    /\ target' = [target EXCEPT ![l] = 0]
    /\ owed' = [owed EXCEPT ![l] = Len(chosen)]
    /\ since' = [since EXCEPT ![l] = current]
    /\ UNCHANGED <<chosen, current, clog, commit, seen, told, gaps>>

\* A coordinator says how much it has committed. It may be deposed and not know it: so the member
\* goes by it only if it was not deposed yet when the member started. It knows that once a majority
\* of seeds said, after the start, that they had promised no newer epoch, or if it saw that the
\* epoch was not active yet after the start.
Hear(l, e) ==
    /\ ~ ready[l] /\ e <= current
    /\ Rule("no newer epoch was promised") => e >= since[l]
    /\ target' = [target EXCEPT ![l] = commit[e] + 1]
    /\ UNCHANGED <<chosen, current, clog, commit, view, started, ready, seen, told, gaps, joins>>

\* The cache of any other member, then the live stream.
Copy(l, other) ==
    /\ ~ ready[l] /\ ready[other] /\ Len(view[other]) > Len(view[l])
    /\ view' = [view EXCEPT ![l] = view[other]]
    /\ UNCHANGED <<chosen, current, clog, commit, target, started, ready, seen, told, gaps, joins>>

Ready(l) ==
    /\ ~ ready[l]
    /\ Rule("ready at the join position") => target[l] > 0 /\ Len(view[l]) + 1 >= target[l]
    /\ ready' = [ready EXCEPT ![l] = TRUE]
    /\ UNCHANGED <<chosen, current, clog, commit, view, target, started, seen, told, gaps, joins>>

\* The client reads on at any ready member; one that is behind makes it wait.
Read(l) ==
    /\ ready[l]
    /\ IF Rule("a member behind makes the client wait")
       THEN /\ Len(view[l]) > Len(seen)
            /\ seen' = Append(seen, view[l][Len(seen) + 1])
       ELSE seen' = view[l]
    /\ UNCHANGED <<chosen, current, clog, commit, view, target, started, ready, told, gaps, joins>>

Next ==
    \/ \E e \in Epoch :
        \/ \E p \in Publication : Append1(e, p) \/ Ask(e, p)
        \/ Refuse(e)
        \/ \E k \in DOMAIN clog[e] :
            Commit1(e, k) \/ CommitLate(e, k) \/ Tell(e, k) \/ \E l \in Learner : Learn(l, e, k)
        \/ \E l \in Learner : Hear(l, e)
        \/ \E n \in 0..Len(clog[current]) : Supersede(e, n)
        \/ \E n \in DOMAIN chosen : BeginLate(e, n)
    \/ \E l \in Learner : Join(l) \/ Ready(l) \/ Read(l) \/ \E o \in Learner : Copy(l, o)

Spec == Init /\ [][Next]_vars

\* I7: what a member delivers is a contiguous run of committed entries, in order ...
DeliveredIsCommitted == \A l \in Learner : Prefix(view[l], chosen)
SeenIsCommitted == Prefix(seen, chosen)
\* ... and no client's view goes back.
NeverBack == [][Len(seen') >= Len(seen)]_seen

\* I8
AckIsTrue ==
    \A t \in told : t.place <= Len(chosen) /\ chosen[t.place].what = t.what

\* A publisher takes itself for forgotten if a number is missing which was acknowledged, and begins
\* anew. Here nobody is forgotten, so it is never told that.
NobodyDenied == ~ denied

\* I10
ReadyHoldsAll == \A l \in Learner : ready[l] => Len(view[l]) >= owed[l]

NeverTailLost ==
    ~ \E e \in Epoch : e < current /\ Len(clog[e]) > Len(chosen) /\ Len(chosen) > 0
NeverJoined == ~ \E l \in Learner : joins > 0 /\ ready[l] /\ owed[l] > 0 /\ Len(seen) > owed[l]

Symmetry == Permutations(Learner) \cup Permutations(Publication)
===============================================================================
