------------------------------- MODULE GroupLog -------------------------------
(* The replicated log of one subject group (docs/cluster.md).                   *)
(*                                                                              *)
(* Seeds vote and hold the log in memory; what a seed promised is on its disk.  *)
(* Each epoch has at most one coordinator (Candidates.tla shows why), which     *)
(* takes over the best log of a majority, establishes it again on a majority,   *)
(* and then appends and commits. Messages are never taken back out of `sent`:   *)
(* any message may come late, twice or never.                                   *)
(*                                                                              *)
(* `Off` names rules that are switched off. It is empty in the models that must *)
(* hold; a model with one rule off must be refuted (spec/models.py).            *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Seed,          \* the seeds
    Publication,   \* identities of publications; numbers 1..n where Numbered
    MaxEpoch,      \* epochs are 1..MaxEpoch
    MaxCrash,      \* how many crashes a behaviour may have
    Numbered,      \* publications come from one numbering publisher
    Off            \* names of the rules that are switched off

Rule(name) == name \notin Off

Epoch == 1..MaxEpoch
Majority == {q \in SUBSET Seed : Cardinality(q) * 2 > Cardinality(Seed)}
CommitQuorum == IF Rule("commit on a majority") THEN Majority ELSE (SUBSET Seed) \ {{}}

VARIABLES
    \* of each seed
    promised,      \* highest epoch it promised (vote file: survives a crash)
    incarnation,   \* rises with each start (vote file)
    status,        \* "normal", "recovering" (restarted), "lost" (vote file lost)
    log,           \* its copy of the log (memory)
    accepted,      \* the epoch that log was established in (memory)
    \* of each epoch's coordinator
    phase,         \* "idle", "sync", "active"
    clog,          \* its log
    base,          \* the length it took over
    fence,         \* per seed: acknowledgements of older incarnations do not count
    commit,        \* how much of clog it committed
    \* of the world
    sent,          \* every message ever sent
    committed,     \* positions and entries committed, with the first epoch that did
    crashes        \* how many crashes there were

seedVars == <<promised, incarnation, status, log, accepted>>
epochVars == <<phase, clog, base, fence, commit>>
logVars == <<seedVars, epochVars, sent, committed, crashes>>

Init ==
    /\ promised = [s \in Seed |-> 0]
    /\ incarnation = [s \in Seed |-> 0]
    /\ status = [s \in Seed |-> "normal"]
    /\ log = [s \in Seed |-> <<>>]
    /\ accepted = [s \in Seed |-> 0]
    /\ phase = [e \in Epoch |-> "idle"]
    /\ clog = [e \in Epoch |-> <<>>]
    /\ base = [e \in Epoch |-> 0]
    /\ fence = [e \in Epoch |-> [s \in Seed |-> 0]]
    /\ commit = [e \in Epoch |-> 0]
    /\ sent = {}
    /\ committed = {}
    /\ crashes = 0

Normal == {s \in Seed : status[s] = "normal"}
AckOf(s, e, n) ==
    [kind |-> "ack", from |-> s, epoch |-> e, inc |-> incarnation[s], length |-> n]
Promises(e) == {m \in sent : m.kind = "promise" /\ m.epoch = e}

\* Seeds whose acknowledgement of length n reached the coordinator of e.
AckedBy(e, n) ==
    {s \in Seed : \E m \in sent :
        /\ m.kind = "ack" /\ m.from = s /\ m.epoch = e /\ m.length >= n
        /\ Rule("acks are fenced") => m.inc >= fence[e][s]}

\* What is committed is written down once, with the epoch that committed it first.
CommitUpTo(e, n) ==
    committed' = committed \cup
        {[place |-> k, entry |-> clog[e][k], epoch |-> e] :
            k \in {j \in 1..n : ~ \E c \in committed : c.place = j /\ c.entry = clog[e][j]}}

-------------------------------------------------------------------------------
(* Election *)

\* `more` is what a promise carries beside the log (readmission: Readmit.tla).
PromiseWith(s, e, more) ==
    /\ status[s] = "normal"
    /\ e > promised[s]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup
        {[kind |-> "promise", from |-> s, epoch |-> e, accepted |-> accepted[s],
          log |-> log[s], inc |-> incarnation[s], more |-> more]}
    /\ UNCHANGED <<incarnation, status, log, accepted, epochVars, committed, crashes>>

Promise(s, e) == PromiseWith(s, e, <<>>)

NotWorse(p, q) ==
    IF Rule("log of the highest accepted epoch")
    THEN p.accepted > q.accepted \/ (p.accepted = q.accepted /\ Len(p.log) >= Len(q.log))
    ELSE Len(p.log) >= Len(q.log)

ElectFrom(e, votes) ==
    LET voters == {m.from : m \in votes} IN
    /\ phase[e] = "idle"
    /\ voters \in Majority
    /\ Cardinality(votes) = Cardinality(voters)
    /\ \E best \in votes :
        /\ \A other \in votes : NotWorse(best, other)
        /\ clog' = [clog EXCEPT ![e] = best.log]
        /\ base' = [base EXCEPT ![e] = Len(best.log)]
    /\ fence' = [fence EXCEPT ![e] = [s \in Seed |->
            IF s \in voters THEN (CHOOSE m \in votes : m.from = s).inc ELSE 0]]
    /\ phase' = [phase EXCEPT ![e] =
            IF Rule("synchronise before active") THEN "sync" ELSE "active"]
    /\ UNCHANGED <<seedVars, commit, sent, committed, crashes>>

Elect(e) == \E votes \in SUBSET Promises(e) : ElectFrom(e, votes)

\* A seed takes the log that the coordinator of e took over, in place of its own.
Sync(s, e) ==
    /\ status[s] = "normal" /\ phase[e] # "idle"
    /\ promised[s] <= e /\ accepted[s] < e
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, base[e])]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {AckOf(s, e, base[e])}
    /\ UNCHANGED <<incarnation, status, epochVars, committed, crashes>>

Activate(e) ==
    /\ phase[e] = "sync"
    /\ AckedBy(e, base[e]) \in Majority
    /\ phase' = [phase EXCEPT ![e] = "active"]
    /\ commit' = [commit EXCEPT ![e] = base[e]]
    /\ CommitUpTo(e, base[e])
    /\ UNCHANGED <<seedVars, clog, base, fence, sent, crashes>>

-------------------------------------------------------------------------------
(* Publications *)

\* Any publication may come to any active coordinator at any time, again and again:
\* that is a publisher which repeats after a time-out, through another member.
IsNext(e, p) ==
    /\ (Rule("a repeat is no new entry") =>
            \A k \in DOMAIN clog[e] : clog[e][k].what # p)
    /\ (Numbered /\ Rule("numbers have no gaps") =>
            p = 1 \/ \E k \in DOMAIN clog[e] : clog[e][k].what = p - 1)

Publish(e, p) ==
    /\ phase[e] = "active"
    /\ IsNext(e, p)
    /\ clog' = [clog EXCEPT ![e] = Append(@, [epoch |-> e, what |-> p])]
    /\ UNCHANGED <<seedVars, phase, base, fence, commit, sent, committed, crashes>>

Accept(s, e, n) ==
    /\ status[s] = "normal" /\ accepted[s] = e /\ promised[s] = e
    /\ n > Len(log[s]) /\ n <= Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ sent' = sent \cup {AckOf(s, e, n)}
    /\ UNCHANGED <<promised, incarnation, status, accepted, epochVars, committed, crashes>>

Commit(e, n) ==
    /\ phase[e] = "active"
    /\ n > commit[e] /\ n <= Len(clog[e])
    /\ AckedBy(e, n) \in CommitQuorum
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ CommitUpTo(e, n)
    /\ UNCHANGED <<seedVars, phase, clog, base, fence, sent, crashes>>

-------------------------------------------------------------------------------
(* Crash and recovery *)

Restarted(s) ==
    /\ incarnation' = [incarnation EXCEPT ![s] = @ + 1]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ promised' = IF Rule("promises are durable")
                   THEN promised ELSE [promised EXCEPT ![s] = 0]
    /\ status' = [status EXCEPT ![s] =
            IF Rule("recover before voting") THEN "recovering" ELSE "normal"]

\* The fault assumption: a majority stays normal.
Crash(s) ==
    /\ crashes < MaxCrash
    /\ Normal \ {s} \in Majority
    /\ crashes' = crashes + 1
    /\ Restarted(s)
    /\ UNCHANGED <<epochVars, sent, committed>>

\* The active coordinator fences the seed's older acknowledgements and hands it the log. Either
\* would do: with the tail the seed holds what it acknowledged before, and without it those
\* acknowledgements do not count. Without both of them they count for what nobody holds.
Handed(e) ==
    IF Rule("the tail is handed over too") THEN clog[e] ELSE SubSeq(clog[e], 1, commit[e])

HandLog(s, e) ==
    /\ phase[e] = "active"
    /\ fence' = [fence EXCEPT ![e][s] = incarnation[s]]
    /\ sent' = sent \cup
        {[kind |-> "recover", to |-> s, epoch |-> e, inc |-> incarnation[s], log |-> Handed(e)]}
    /\ UNCHANGED <<seedVars, phase, clog, base, commit, committed, crashes>>

Register(s, e) ==
    /\ status[s] = "recovering" /\ promised[s] <= e
    /\ HandLog(s, e)

InstallFrom(s, m) ==
    /\ m.kind = "recover" /\ m.to = s /\ m.inc = incarnation[s]
    /\ status[s] # "normal" /\ promised[s] <= m.epoch
    /\ status' = [status EXCEPT ![s] = "normal"]
    /\ log' = [log EXCEPT ![s] = m.log]
    /\ accepted' = [accepted EXCEPT ![s] = m.epoch]
    /\ promised' = [promised EXCEPT ![s] = m.epoch]
    /\ sent' = sent \cup {AckOf(s, m.epoch, Len(m.log))}
    /\ UNCHANGED <<incarnation, epochVars, committed, crashes>>

Install(s) == \E m \in sent : InstallFrom(s, m)

\* Not part of the protocol: what the rule against it is good for.
InstallFromPeers(s) ==
    /\ ~ Rule("recover from the coordinator only")
    /\ status[s] = "recovering"
    /\ Normal \in Majority
    /\ \E peers \in SUBSET Normal : peers \in Majority /\ \E best \in peers :
        /\ \A other \in peers : \/ accepted[best] > accepted[other]
                                \/ /\ accepted[best] = accepted[other]
                                   /\ Len(log[best]) >= Len(log[other])
        /\ log' = [log EXCEPT ![s] = log[best]]
        /\ accepted' = [accepted EXCEPT ![s] = accepted[best]]
    /\ status' = [status EXCEPT ![s] = "normal"]
    /\ UNCHANGED <<promised, incarnation, epochVars, sent, committed, crashes>>

-------------------------------------------------------------------------------

CoordinatorStep(e) ==
    \/ Elect(e) \/ Activate(e)
    \/ \E p \in Publication : Publish(e, p)
    \/ \E n \in 1..Len(clog[e]) : Commit(e, n)

SeedStep(s, e) ==
    \/ Promise(s, e) \/ Sync(s, e) \/ Register(s, e)
    \/ \E n \in 1..Len(clog[e]) : Accept(s, e, n)

Next ==
    \/ \E e \in Epoch : CoordinatorStep(e) \/ \E s \in Seed : SeedStep(s, e)
    \/ \E s \in Seed : Crash(s) \/ Install(s) \/ InstallFromPeers(s)

Spec == Init /\ [][Next]_logVars

\* Bounds the logs of the models in which a repeat is a new entry.
Bounded == \A e \in Epoch : Len(clog[e]) <= Cardinality(Publication) + 1

-------------------------------------------------------------------------------
(* Invariants, numbered as in docs/cluster.md *)

\* I1: a committed entry is at its place in the log of every later coordinator ...
CommittedSurvives ==
    \A c \in committed : \A e \in Epoch :
        e > c.epoch /\ phase[e] # "idle"
            => Len(clog[e]) >= c.place /\ clog[e][c.place] = c.entry

\* ... and every majority of normal seeds holds it.
HeldByEveryMajority ==
    \A c \in committed : \A q \in Majority : q \subseteq Normal =>
        \E s \in q : Len(log[s]) >= c.place /\ log[s][c.place] = c.entry

\* I2
Agreement == \A c, d \in committed : c.place = d.place => c.entry = d.entry

\* I3: entries of one epoch at one place are the same entry, in every log.
Logs == {clog[e] : e \in Epoch} \cup {log[s] : s \in Seed}
Identity ==
    \A l, m \in Logs : \A k \in DOMAIN l \cap DOMAIN m :
        l[k].epoch = m[k].epoch => l[k] = m[k]

\* I4: along a log epochs never fall.
EpochsRise == \A l \in Logs : \A k \in DOMAIN l : k > 1 => l[k - 1].epoch <= l[k].epoch

\* I6
Once == \A c, d \in committed : c.entry.what = d.entry.what => c.place = d.place

\* I9
PublisherOrder ==
    Numbered => \A c, d \in committed : c.entry.what < d.entry.what => c.place < d.place

\* The committed log grows only at its end: Delivery.tla starts from this.
CommittedHasNoHole ==
    \A c \in committed : \A k \in 1..c.place : \E d \in committed : d.place = k

-------------------------------------------------------------------------------
(* Witnesses: each must be violated, or the models above say nothing. *)

NeverCommittedByTwoEpochs ==
    ~ \E c, d \in committed : c.epoch < d.epoch
NeverRecovered ==
    ~ \E s \in Seed : incarnation[s] > 0 /\ status[s] = "normal"
        /\ \E c \in committed : c.epoch = accepted[s]
NeverTakenOverUncommitted ==
    ~ \E e \in Epoch : phase[e] = "active" /\ \E k \in 1..base[e] :
        \E f \in Epoch : f < e /\ phase[f] = "active" /\ commit[f] < k /\ k <= Len(clog[f])
            /\ clog[f][k] = clog[e][k]
NeverTwoActive ==
    ~ \E e, f \in Epoch : e # f /\ phase[e] = "active" /\ phase[f] = "active"
        /\ commit[e] < Len(clog[e]) /\ commit[f] < Len(clog[f])

Symmetry == IF Numbered THEN Permutations(Seed)
            ELSE Permutations(Seed) \cup Permutations(Publication)
===============================================================================
