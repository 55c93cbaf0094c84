------------------------------- MODULE Relist --------------------------------
(* Other seeds while the cluster runs (docs/cluster.md, "Changing the seeds"): the *)
(* log of GroupLog, with seeds that are replaced by lists. A list differs from the *)
(* one before it in one seed, so a majority of the one and a majority of the other *)
(* share a seed. That is not so of a list and the one after the next, nor of two   *)
(* lists that both follow the same one. So there are four rules beside that:       *)
(*                                                                                 *)
(* - A seed promises epochs of the list that it has noted in its vote file, and of *)
(*   no older one. Of a newer one it promises none before it has noted that.       *)
(* - The next list may be noted once an epoch of this one is active in the group   *)
(*   ("settled"): from then on nothing is elected by the list before.              *)
(* - Each seed of a list names its next list once, and never another one.          *)
(* - The next list begins when a majority of the seeds of this one has named it.   *)
(*                                                                                 *)
(* Whoever coordinates an epoch of an older list goes on until a newer epoch is    *)
(* elected. A new seed does not vote before an active coordinator has given it the *)
(* log, as after a crash.                                                          *)
(*                                                                                 *)
(* A seed that loses its vote file is lost. If the list in force has it, others    *)
(* elect an epoch for its loss (Readmit; left out here). If that list, which has   *)
(* to be settled, lacks it, it begins anew without anybody's word: what it         *)
(* promised was for epochs of lists that elect nothing any more.                   *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Seed,          \* everybody who votes by any list
    Config,        \* a sequence of lists: sets of seeds
    Before,        \* of each list the one that it follows; 0 for the first
    Publication,
    MaxEpoch,      \* epoch 1 is there at the beginning; others are elected
    MaxCrash,
    MaxLoss,
    Off            \* names of the rules that are switched off

Rule(name) == name \notin Off

\* What the models use; a configuration file can only name them. ThreeToFive and FiveToThree are
\* what operators do, and more than TLC exhausts: README.md says why the small ones are enough.
\* A seed that goes, and comes back.
Unchanged == <<{"s1", "s2", "s3"}>>
OutAndIn == <<{"s1", "s2"}, {"s1"}, {"s1", "s2"}>>
TwoToThree == <<{"s1", "s2"}, {"s1", "s2", "s3"}>>
ThreeToTwo == <<{"s1", "s2", "s3"}, {"s1", "s2"}>>
\* Three lists of which the first and the last have no seed in common.
Moved == <<{"s1"}, {"s1", "s2"}, {"s2"}>>
\* Against the rule: lists that differ in two seeds.
Swapped == <<{"s1"}, {"s2"}>>
TwoMore == <<{"s1"}, {"s1", "s2", "s3"}>>
ThreeToFive ==
    <<{"s1", "s2", "s3"}, {"s1", "s2", "s3", "s4"}, {"s1", "s2", "s3", "s4", "s5"}>>
FiveToThree ==
    <<{"s1", "s2", "s3", "s4", "s5"}, {"s1", "s2", "s3", "s4"}, {"s1", "s2", "s3"}>>
\* Two lists that follow the same one, and have majorities without a seed in common.
Forked == <<{"s1", "s2"}, {"s1", "s2", "s3"}, {"s1"}>>

InARow == [c \in DOMAIN Config |-> c - 1]
FromTheFirst == [c \in DOMAIN Config |-> IF c = 1 THEN 0 ELSE 1]

Epoch == 1..MaxEpoch
List == DOMAIN Config
Majority(c, some) == Cardinality(some \cap Config[c]) * 2 > Cardinality(Config[c])
RECURSIVE Number(_)
Number(c) == IF Before[c] = 0 THEN 1 ELSE 1 + Number(Before[c])

VARIABLES
    begun,              \* the first list, and those that a majority of the one before has named
    \* of each seed; the first three are in its vote file
    noted,              \* its list: it promises no epoch of an older one
    next,               \* the list that is to follow on that, 0 if it knows none
    promised,
    incarnation, status, log, accepted,
    \* of each epoch
    conf,               \* the list of its candidate, 0 before anybody stood for it
    phase, clog, base, fence, commit,
    \* of the world
    sent, committed, crashes,
    \* of losses: the seeds that a lost one has heard say that they named no list after its own
    heard, losses

listVars == <<begun, noted, next>>
seedVars == <<promised, incarnation, status, log, accepted>>
epochVars == <<phase, clog, base, fence, commit>>
lossVars == <<heard, losses>>
vars == <<listVars, seedVars, conf, epochVars, sent, committed, crashes, lossVars>>

First == Config[1]

Init ==
    /\ begun = {1}
    /\ noted = [s \in Seed |-> 1]
    /\ next = [s \in Seed |-> 0]
    /\ promised = [s \in Seed |-> IF s \in First THEN 1 ELSE 0]
    /\ incarnation = [s \in Seed |-> 0]
    /\ status = [s \in Seed |-> IF s \in First THEN "normal" ELSE "recovering"]
    /\ log = [s \in Seed |-> <<>>]
    /\ accepted = promised
    /\ conf = [e \in Epoch |-> IF e = 1 THEN 1 ELSE 0]
    /\ phase = [e \in Epoch |-> IF e = 1 THEN "active" ELSE "idle"]
    /\ clog = [e \in Epoch |-> <<>>]
    /\ base = [e \in Epoch |-> 0]
    /\ fence = [e \in Epoch |-> [s \in Seed |-> 0]]
    /\ commit = [e \in Epoch |-> 0]
    /\ sent = {}
    /\ committed = {}
    /\ crashes = 0
    /\ heard = [s \in Seed |-> {}]
    /\ losses = 0

AckOf(s, e, n) ==
    [kind |-> "ack", from |-> s, epoch |-> e, inc |-> incarnation[s], length |-> n]
AckedBy(e, n) ==
    {s \in Seed : \E m \in sent :
        /\ m.kind = "ack" /\ m.from = s /\ m.epoch = e /\ m.length >= n
        /\ m.inc >= fence[e][s]}

CommitUpTo(e, n) ==
    committed' = committed \cup
        {[place |-> k, entry |-> clog[e][k], epoch |-> e] :
            k \in {j \in 1..n : ~ \E c \in committed : c.place = j /\ c.entry = clog[e][j]}}

-------------------------------------------------------------------------------
(* Lists *)

Settled(c) == \E e \in Epoch : conf[e] = c /\ phase[e] = "active"

\* An operator's order, or what another seed has named: the vote file has it before others hear it.
Name(s, c) ==
    /\ Before[c] \in begun /\ s \in Config[Before[c]]
    /\ noted[s] = Before[c] /\ status[s] # "lost"
    /\ next[s] # c
    /\ Rule("a next list is named once") => next[s] = 0
    /\ Rule("settled before the next") => Settled(Before[c])
    /\ next' = [next EXCEPT ![s] = c]
    /\ UNCHANGED <<begun, noted, seedVars, conf, epochVars, sent, committed, crashes, lossVars>>

Named(c) == {s \in Config[Before[c]] : noted[s] = Before[c] /\ next[s] = c}

Begin(c) ==
    /\ c \notin begun /\ Before[c] \in begun
    /\ IF Rule("a majority names the next list") THEN Majority(Before[c], Named(c))
       ELSE Named(c) # {}
    /\ begun' = begun \cup {c}
    /\ UNCHANGED <<noted, next, seedVars, conf, epochVars, sent, committed, crashes, lossVars>>

Note(s, c) ==
    /\ c \in begun /\ Number(c) > Number(noted[s])
    /\ noted' = [noted EXCEPT ![s] = c]
    /\ next' = [next EXCEPT ![s] = 0]
    /\ heard' = [heard EXCEPT ![s] = {}]
    /\ UNCHANGED <<begun, seedVars, conf, epochVars, sent, committed, crashes, losses>>

-------------------------------------------------------------------------------
(* Election *)

\* Whoever knows a list that was begun may stand, however long ago that was.
Stand(e, c) ==
    /\ conf[e] = 0 /\ c \in begun
    /\ conf' = [conf EXCEPT ![e] = c]
    /\ UNCHANGED <<listVars, seedVars, epochVars, sent, committed, crashes, lossVars>>

Promise(s, e) ==
    /\ conf[e] # 0 /\ phase[e] = "idle"
    /\ status[s] = "normal" /\ s \in Config[conf[e]]
    /\ Rule("older lists are refused") => Number(conf[e]) >= Number(noted[s])
    /\ Rule("newer lists are noted first") => Number(conf[e]) <= Number(noted[s])
    /\ Number(conf[e]) = Number(noted[s]) => conf[e] = noted[s]
    /\ e > promised[s]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup
        {[kind |-> "promise", from |-> s, epoch |-> e, accepted |-> accepted[s],
          log |-> log[s], inc |-> incarnation[s]]}
    /\ UNCHANGED <<listVars, incarnation, status, log, accepted, conf, epochVars, committed,
                   crashes, lossVars>>

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
        /\ fence' = [fence EXCEPT ![e] = [s \in Seed |->
                IF \E m \in votes : m.from = s
                THEN (CHOOSE m \in votes : m.from = s).inc ELSE 0]]
    /\ phase' = [phase EXCEPT ![e] = "sync"]
    /\ UNCHANGED <<listVars, seedVars, conf, commit, sent, committed, crashes, lossVars>>

\* The list says whose acks count, and not who may take a log.
Sync(s, e) ==
    /\ phase[e] # "idle" /\ status[s] = "normal"
    /\ promised[s] <= e /\ accepted[s] < e
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, base[e])]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {AckOf(s, e, base[e])}
    /\ UNCHANGED <<listVars, incarnation, status, conf, epochVars, committed, crashes, lossVars>>

Activate(e) ==
    /\ phase[e] = "sync"
    /\ Majority(conf[e], AckedBy(e, base[e]))
    /\ phase' = [phase EXCEPT ![e] = "active"]
    /\ commit' = [commit EXCEPT ![e] = base[e]]
    /\ CommitUpTo(e, base[e])
    /\ UNCHANGED <<listVars, seedVars, conf, clog, base, fence, sent, crashes, lossVars>>

-------------------------------------------------------------------------------
(* Publications *)

Publish(e, p) ==
    /\ phase[e] = "active"
    /\ \A k \in DOMAIN clog[e] : clog[e][k].what # p
    /\ clog' = [clog EXCEPT ![e] = Append(@, [epoch |-> e, what |-> p])]
    /\ UNCHANGED <<listVars, seedVars, conf, phase, base, fence, commit, sent, committed, crashes,
                   lossVars>>

Accept(s, e, n) ==
    /\ status[s] = "normal" /\ accepted[s] = e /\ promised[s] = e
    /\ n > Len(log[s]) /\ n <= Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ sent' = sent \cup {AckOf(s, e, n)}
    /\ UNCHANGED <<listVars, promised, incarnation, status, accepted, conf, epochVars, committed,
                   crashes, lossVars>>

Commit(e, n) ==
    /\ phase[e] = "active"
    /\ n > commit[e] /\ n <= Len(clog[e])
    /\ Majority(conf[e], AckedBy(e, n))
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ CommitUpTo(e, n)
    /\ UNCHANGED <<listVars, seedVars, conf, phase, clog, base, fence, sent, crashes, lossVars>>

-------------------------------------------------------------------------------
(* Crash and recovery *)

\* The vote file stays: with it the list, its next one and the promise.
Crash(s) ==
    /\ crashes < MaxCrash
    /\ crashes' = crashes + 1
    /\ incarnation' = [incarnation EXCEPT ![s] = @ + 1]
    /\ status' = [status EXCEPT ![s] = IF @ \in {"lost", "anew"} THEN "lost" ELSE "recovering"]
    /\ heard' = [heard EXCEPT ![s] = {}]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ noted' = IF Rule("the list is durable") THEN noted ELSE [noted EXCEPT ![s] = 1]
    /\ UNCHANGED <<begun, next, promised, conf, epochVars, sent, committed, losses>>

\* Without its vote file a seed goes by the first list, until it hears of a newer one.
Lose(s) ==
    /\ losses < MaxLoss
    /\ losses' = losses + 1
    /\ incarnation' = [incarnation EXCEPT ![s] = @ + 1]
    /\ status' = [status EXCEPT ![s] = "lost"]
    /\ promised' = [promised EXCEPT ![s] = 0]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ noted' = [noted EXCEPT ![s] = 1]
    /\ next' = [next EXCEPT ![s] = 0]
    /\ heard' = [heard EXCEPT ![s] = {}]
    /\ UNCHANGED <<begun, conf, epochVars, sent, committed, crashes>>

Hear(s, q) ==
    /\ status[s] = "lost" /\ q \in Config[noted[s]]
    /\ noted[q] = noted[s] /\ next[q] = 0 /\ status[q] # "lost"
    /\ heard' = [heard EXCEPT ![s] = @ \cup {q}]
    /\ UNCHANGED <<listVars, seedVars, conf, epochVars, sent, committed, crashes, losses>>

\* No majority of the list can have named another one by the time of the loss.
NoneFollowed(s) == ~ Majority(noted[s], Config[noted[s]] \ heard[s])

ComeAnew(s) ==
    /\ status[s] = "lost"
    /\ Rule("who begins anew is in no list") => s \notin Config[noted[s]]
    /\ Rule("no newer list has it") => NoneFollowed(s)
    /\ Rule("the list without it is settled") => Settled(noted[s])
    /\ status' = [status EXCEPT ![s] = "anew"]
    /\ UNCHANGED <<listVars, promised, incarnation, log, accepted, conf, epochVars, sent, committed,
                   crashes, lossVars>>

\* An epoch of a list without the seed rests on no promise that it forgot.
Rested(s, e) == Rule("who begins anew is given the log by others") => s \notin Config[conf[e]]

\* The active coordinator counts this start of the seed from now on, and gives it its log.
\* A coordinator of the list before may do that too: it counts the seed if its list has it.
TakeBack(s, e) ==
    /\ phase[e] = "active"
    /\ promised[s] <= e
    /\ \/ status[s] = "recovering"
       \/ status[s] = "anew" /\ Rested(s, e)
    /\ fence' = [fence EXCEPT ![e][s] = incarnation[s]]
    /\ status' = [status EXCEPT ![s] = "normal"]
    /\ log' = [log EXCEPT ![s] = clog[e]]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {AckOf(s, e, Len(clog[e]))}
    /\ UNCHANGED <<listVars, incarnation, conf, phase, clog, base, commit, committed, crashes,
                   lossVars>>

-------------------------------------------------------------------------------

Next ==
    \/ \E c \in List : Begin(c) \/ \E s \in Seed : Name(s, c) \/ Note(s, c)
    \/ \E s \in Seed : Crash(s) \/ Lose(s) \/ ComeAnew(s) \/ \E q \in Seed : Hear(s, q)
    \/ \E e \in Epoch :
        \/ \E c \in List : Stand(e, c)
        \/ Elect(e) \/ Activate(e)
        \/ \E p \in Publication : Publish(e, p)
        \/ \E n \in 1..Len(clog[e]) : Commit(e, n)
        \/ \E s \in Seed :
            \/ Promise(s, e) \/ Sync(s, e) \/ TakeBack(s, e)
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

\* There are never two lists of one number.
OneListANumber == \A c, d \in begun : Number(c) = Number(d) => c = d

\* What a later list elects is a later epoch.
ListsRise ==
    \A e, f \in Epoch : phase[e] # "idle" /\ phase[f] # "idle"
        /\ Number(conf[e]) < Number(conf[f]) => e < f

\* Seeds that a settled list leaves out can be switched off: every majority of it that votes has
\* everything.
OldSeedsAreFree ==
    \A c \in List : Settled(c) =>
        \A d \in committed : Number(conf[d.epoch]) < Number(c) =>
            \A some \in SUBSET {s \in Config[c] : status[s] = "normal"} : Majority(c, some) =>
                \E s \in some : Len(log[s]) >= d.place /\ log[s][d.place] = d.entry

-------------------------------------------------------------------------------
(* Witnesses: each must be violated, or the models above say nothing. *)

NeverCommittedByLaterLists ==
    ~ \E c, d \in committed : c.place < d.place /\ Number(conf[c.epoch]) < Number(conf[d.epoch])
NeverBackAfterALoss ==
    ~ \E s \in Seed, e \in Epoch : losses = 1 /\ crashes = 0 /\ incarnation[s] = 1
        /\ status[s] = "normal" /\ accepted[s] = e /\ s \in Config[conf[e]]
        /\ \E c \in committed : c.epoch = e
NeverSettled == ~ Settled(Len(Config))
===============================================================================
