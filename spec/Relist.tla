------------------------------- MODULE Relist --------------------------------
(* Another list of seeds by restarts, one member after the other (spec/README.md, *)
(* "Other seeds"): the log of GroupLog, with members that run with different      *)
(* lists for a while. A list differs from the one before in one seed, so a        *)
(* majority of the one and a majority of the other share a seed, and neither      *)
(* epochs nor votes carry a number.                                               *)
(*                                                                                *)
(* That is not so of a list and the one after the next. So the third one begins   *)
(* only when the second is settled: an epoch of it is active that was elected by  *)
(* seeds all of which had noted in their vote files before that they take part in *)
(* nothing of the first any more. A candidate or coordinator may run with any     *)
(* list that was ever begun: it may have been out of sight since. Crashes are     *)
(* those of GroupLog, and are left out here.                                      *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Seed,          \* everybody who votes by any list
    Config,        \* a sequence of sets of seeds
    Stands,        \* by which lists somebody may stand for an epoch
    Publication,
    MaxEpoch,      \* epoch 1 is there at the beginning; others are elected
    Off            \* names of the rules that are switched off

Rule(name) == name \notin Off

\* What the models use; a configuration file can only name them. Not run by any model, since
\* TLC does not exhaust them: ThreeToFive, FiveToThree and OldComesBack, and the protocol without
\* "seeds are fenced" or "elected by fenced seeds".
OneMore == <<{"s1", "s2", "s3"}, {"s1", "s2", "s3", "s4"}>>
ThreeToFive ==
    <<{"s1", "s2", "s3"}, {"s1", "s2", "s3", "s4"}, {"s1", "s2", "s3", "s4", "s5"}>>
FiveToThree ==
    <<{"s1", "s2", "s3", "s4", "s5"}, {"s1", "s2", "s3", "s4"}, {"s1", "s2", "s3"}>>
Replaced == <<{"s1", "s2", "s3"}, {"s1", "s2", "s3", "s4"}, {"s2", "s3", "s4"}>>
TwoAtOnce == <<{"s1", "s2", "s3"}, {"s1", "s2", "s3", "s4", "s5"}>>
TwoReplaced == <<{"s1", "s2", "s3"}, {"s3", "s4", "s5"}>>

Epoch == 1..MaxEpoch
Number == 1..Len(Config)
Majority(c, some) == Cardinality(some \cap Config[c]) * 2 > Cardinality(Config[c])

AnyList == [e \in Epoch |-> Number]
\* Who was out of sight since the first list comes back between the second and the third.
OldComesBack == <<{1}, {2}, {1}, {3}>>

VARIABLES
    begun,              \* the newest list that members run with
    \* of each seed
    fenced,             \* in its vote file: the first list in which it still takes part
    promised, log, accepted,
    \* of each epoch
    conf,               \* the list of its candidate, 0 before anybody stood for it
    firm,               \* every seed that elected it takes part in no earlier list
    phase, clog, base, commit,
    \* of the world
    sent, committed

listVars == <<begun, fenced>>
seedVars == <<promised, log, accepted>>
epochVars == <<phase, clog, base, commit>>
vars == <<listVars, seedVars, conf, firm, epochVars, sent, committed>>

Init ==
    /\ begun = 1
    /\ fenced = [s \in Seed |-> 1]
    /\ promised = [s \in Seed |-> 1]
    /\ log = [s \in Seed |-> <<>>]
    /\ accepted = [s \in Seed |-> 1]
    /\ conf = [e \in Epoch |-> IF e = 1 THEN 1 ELSE 0]
    /\ firm = [e \in Epoch |-> e = 1]
    /\ phase = [e \in Epoch |-> IF e = 1 THEN "active" ELSE "idle"]
    /\ clog = [e \in Epoch |-> <<>>]
    /\ base = [e \in Epoch |-> 0]
    /\ commit = [e \in Epoch |-> 0]
    /\ sent = {}
    /\ committed = {}

Ack(s, e, n) == [kind |-> "ack", from |-> s, epoch |-> e, length |-> n]
AckedBy(e, n) ==
    {s \in Seed : \E m \in sent :
        m.kind = "ack" /\ m.from = s /\ m.epoch = e /\ m.length >= n}

CommitUpTo(e, n) ==
    committed' = committed \cup
        {[place |-> k, entry |-> clog[e][k], epoch |-> e] :
            k \in {j \in 1..n : ~ \E c \in committed : c.place = j /\ c.entry = clog[e][j]}}

-------------------------------------------------------------------------------
(* Lists *)

\* Nothing is committed by an earlier list any more, and a majority of this one holds what was.
Settled(c) ==
    \E e \in Epoch :
        /\ conf[e] = c
        /\ phase[e] = "active"
        /\ Rule("elected by fenced seeds") => firm[e]

\* An operator restarts the first member with the next list.
Begin ==
    /\ begun < Len(Config)
    /\ Rule("settled before the next") => Settled(begun)
    /\ begun' = begun + 1
    /\ UNCHANGED <<fenced, seedVars, conf, firm, epochVars, sent, committed>>

\* When it does so is a matter of service: too early, and the list before has no majority left.
Fence(s) ==
    /\ fenced[s] < begun
    /\ fenced' = [fenced EXCEPT ![s] = begun]
    /\ UNCHANGED <<begun, seedVars, conf, firm, epochVars, sent, committed>>

TakesPart(s, e) ==
    /\ s \in Config[conf[e]]
    /\ Rule("seeds are fenced") => conf[e] >= fenced[s]

-------------------------------------------------------------------------------
(* Election *)

\* Whoever runs with a list that was begun may stand, however long ago that was.
Stand(e, c) ==
    /\ conf[e] = 0
    /\ c <= begun /\ c \in Stands[e]
    /\ conf' = [conf EXCEPT ![e] = c]
    /\ UNCHANGED <<listVars, seedVars, firm, epochVars, sent, committed>>

Promise(s, e) ==
    /\ conf[e] # 0 /\ phase[e] = "idle"
    /\ TakesPart(s, e)
    /\ e > promised[s]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup
        {[kind |-> "promise", from |-> s, epoch |-> e, accepted |-> accepted[s],
          log |-> log[s], fenced |-> fenced[s]]}
    /\ UNCHANGED <<listVars, log, accepted, conf, firm, epochVars, committed>>

NotWorse(p, q) ==
    p.accepted > q.accepted \/ (p.accepted = q.accepted /\ Len(p.log) >= Len(q.log))

Elect(e) ==
    /\ conf[e] # 0 /\ phase[e] = "idle"
    /\ \E votes \in (SUBSET {m \in sent : m.kind = "promise" /\ m.epoch = e}) \ {{}} :
        /\ Majority(conf[e], {m.from : m \in votes})
        /\ \E best \in votes :
            /\ \A other \in votes : NotWorse(best, other)
            /\ clog' = [clog EXCEPT ![e] = best.log]
            /\ base' = [base EXCEPT ![e] = Len(best.log)]
        /\ firm' = [firm EXCEPT ![e] = \A m \in votes : m.fenced >= conf[e]]
    /\ phase' = [phase EXCEPT ![e] = "sync"]
    /\ UNCHANGED <<listVars, seedVars, conf, commit, sent, committed>>

Sync(s, e) ==
    /\ phase[e] # "idle"
    /\ TakesPart(s, e)
    /\ promised[s] <= e /\ accepted[s] < e
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, base[e])]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {Ack(s, e, base[e])}
    /\ UNCHANGED <<listVars, conf, firm, epochVars, committed>>

Activate(e) ==
    /\ phase[e] = "sync"
    /\ Majority(conf[e], AckedBy(e, base[e]))
    /\ phase' = [phase EXCEPT ![e] = "active"]
    /\ commit' = [commit EXCEPT ![e] = base[e]]
    /\ CommitUpTo(e, base[e])
    /\ UNCHANGED <<listVars, seedVars, conf, firm, clog, base, sent>>

-------------------------------------------------------------------------------
(* Publications *)

Publish(e, p) ==
    /\ phase[e] = "active"
    /\ \A k \in DOMAIN clog[e] : clog[e][k].what # p
    /\ clog' = [clog EXCEPT ![e] = Append(@, [epoch |-> e, what |-> p])]
    /\ UNCHANGED <<listVars, seedVars, conf, firm, phase, base, commit, sent, committed>>

Accept(s, e, n) ==
    /\ TakesPart(s, e)
    /\ accepted[s] = e /\ promised[s] = e
    /\ n > Len(log[s]) /\ n <= Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ sent' = sent \cup {Ack(s, e, n)}
    /\ UNCHANGED <<listVars, promised, accepted, conf, firm, epochVars, committed>>

Commit(e, n) ==
    /\ phase[e] = "active"
    /\ n > commit[e] /\ n <= Len(clog[e])
    /\ Majority(conf[e], AckedBy(e, n))
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ CommitUpTo(e, n)
    /\ UNCHANGED <<listVars, seedVars, conf, firm, phase, clog, base, sent>>

-------------------------------------------------------------------------------

Next ==
    \/ Begin
    \/ \E s \in Seed : Fence(s)
    \/ \E e \in Epoch :
        \/ \E c \in Number : Stand(e, c)
        \/ Elect(e) \/ Activate(e)
        \/ \E p \in Publication : Publish(e, p)
        \/ \E n \in 1..Len(clog[e]) : Commit(e, n)
        \/ \E s \in Seed :
            \/ Promise(s, e) \/ Sync(s, e)
            \/ \E n \in 1..Len(clog[e]) : Accept(s, e, n)

Spec == Init /\ [][Next]_vars

-------------------------------------------------------------------------------
(* Invariants, numbered as in docs/cluster.md *)

\* I1: a committed entry is at its place in the log of every later coordinator.
CommittedSurvives ==
    \A c \in committed : \A e \in Epoch :
        e > c.epoch /\ phase[e] # "idle"
            => Len(clog[e]) >= c.place /\ clog[e][c.place] = c.entry

\* I2
Agreement == \A c, d \in committed : c.place = d.place => c.entry = d.entry

\* I6
Once == \A c, d \in committed : c.entry.what = d.entry.what => c.place = d.place

\* Seeds that a settled list leaves out can be switched off: every majority of it has everything.
OldSeedsAreFree ==
    \A c \in Number : c > 1 /\ Settled(c) =>
        \A d \in committed : conf[d.epoch] < c =>
            \A some \in SUBSET Config[c] : Majority(c, some) =>
                \E s \in some : Len(log[s]) >= d.place /\ log[s][d.place] = d.entry

-------------------------------------------------------------------------------
(* Witnesses: each must be violated, or the models above say nothing. *)

NeverCommittedByLaterLists ==
    ~ \E c, d \in committed : c.place < d.place /\ conf[c.epoch] < conf[d.epoch]
NeverSettled == ~ Settled(Len(Config))
===============================================================================
