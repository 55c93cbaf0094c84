----------------------------- MODULE Reconfigure ------------------------------
(* How the seeds of a cluster could change while it runs (docs/cluster.md,      *)
(* "Changing who is a member"): the log of GroupLog, but an epoch carries the   *)
(* number of the configuration whose seeds vote in it. `Config` names the seeds *)
(* of each, in their order; nothing is said of how many two of them share.      *)
(*                                                                              *)
(* The first epoch of a configuration is elected by the seeds of the one before *)
(* and is active once a majority of its own seeds holds the log. A seed notes   *)
(* the configuration in its vote file as it promises, and takes part in no      *)
(* earlier one from then on. Until a configuration is known to be established,  *)
(* both have to elect: the log may be with the old seeds still, or with the new *)
(* ones already. Crashes are those of GroupLog, and are left out here.          *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Seed,          \* everybody who votes in any configuration
    Config,        \* a sequence of sets of seeds
    Publication,
    MaxEpoch,      \* epoch 1 is there at the beginning; others are elected
    Off            \* names of the rules that are switched off

Rule(name) == name \notin Off

\* What the models use; a configuration file can only name them.
ReplaceOne == <<{"s1", "s2", "s3"}, {"s2", "s3", "s4"}>>
ReplaceTwo == <<{"s1", "s2", "s3"}, {"s3", "s4", "s5"}>>
ThreeToFive == <<{"s1", "s2", "s3"}, {"s1", "s2", "s3", "s4", "s5"}>>
FiveToThree == <<{"s1", "s2", "s3", "s4", "s5"}, {"s1", "s2", "s3"}>>
ThereAndBack == <<{"s1", "s2", "s3"}, {"s2", "s3", "s4"}, {"s1", "s2", "s3"}>>

Epoch == 1..MaxEpoch
Number == 1..Len(Config)
Majority(c, some) == Cardinality(some \cap Config[c]) * 2 > Cardinality(Config[c])
Highest(numbers) == CHOOSE n \in numbers : \A m \in numbers : m <= n
Before(c) == IF c > 1 THEN c - 1 ELSE 1

VARIABLES
    \* of each seed
    promised, noted,    \* epoch and configuration in its vote file
    known,              \* the newest configuration that it knows to be established
    log, accepted,
    \* of each epoch
    conf,               \* its configuration, 0 before anybody stood for it
    phase, clog, base, commit,
    \* of the world
    sent, committed

seedVars == <<promised, noted, known, log, accepted>>
epochVars == <<phase, clog, base, commit>>
vars == <<seedVars, conf, epochVars, sent, committed>>

Init ==
    /\ promised = [s \in Seed |-> IF s \in Config[1] THEN 1 ELSE 0]
    /\ noted = [s \in Seed |-> IF s \in Config[1] THEN 1 ELSE 0]
    /\ known = noted
    /\ log = [s \in Seed |-> <<>>]
    /\ accepted = promised
    /\ conf = [e \in Epoch |-> IF e = 1 THEN 1 ELSE 0]
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
(* Election *)

\* A candidate says for which configuration it stands: an operator's word, or what it was told.
Stand(e, c) ==
    /\ conf[e] = 0
    /\ conf' = [conf EXCEPT ![e] = c]
    /\ UNCHANGED <<seedVars, epochVars, sent, committed>>

\* The seeds of an old configuration may be asked too, but none of another one takes part.
Asked(e) == Config[conf[e]] \cup Config[Before(conf[e])]

Note(s, e) ==
    noted' = IF Rule("seeds note the configuration")
             THEN [noted EXCEPT ![s] = Highest({@, conf[e]})] ELSE noted

Promise(s, e) ==
    /\ conf[e] # 0 /\ phase[e] = "idle" /\ s \in Asked(e)
    /\ e > promised[s]
    /\ conf[e] >= noted[s]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ Note(s, e)
    /\ sent' = sent \cup
        {[kind |-> "promise", from |-> s, epoch |-> e, accepted |-> accepted[s],
          log |-> log[s], noted |-> noted[s], known |-> known[s]]}
    /\ UNCHANGED <<known, log, accepted, conf, epochVars, committed>>

NotWorse(p, q) ==
    p.accepted > q.accepted \/ (p.accepted = q.accepted /\ Len(p.log) >= Len(q.log))

\* Who has to promise, by what those that did tell of earlier epochs.
Enough(c, votes) ==
    LET voters == {m.from : m \in votes}
        told == Highest({m.noted : m \in votes})
        sure == Highest({m.known : m \in votes})
    IN  IF told < c
        THEN \* the first epoch of c: nobody promised one yet
             /\ Rule("one change at a time") => told = c - 1 /\ sure = c - 1
             /\ IF Rule("the old seeds elect") THEN Majority(Before(c), voters)
                ELSE Majority(c, voters)
        ELSE /\ told = c
             /\ Majority(c, voters)
             /\ Rule("both elect until it is established") /\ sure < c
                    => Majority(Before(c), voters)

Elect(e) ==
    /\ conf[e] # 0 /\ phase[e] = "idle"
    /\ \E votes \in (SUBSET {m \in sent : m.kind = "promise" /\ m.epoch = e}) \ {{}} :
        /\ Enough(conf[e], votes)
        /\ \E best \in votes :
            /\ \A other \in votes : NotWorse(best, other)
            /\ clog' = [clog EXCEPT ![e] = best.log]
            /\ base' = [base EXCEPT ![e] = Len(best.log)]
    /\ phase' = [phase EXCEPT ![e] = "sync"]
    /\ UNCHANGED <<seedVars, conf, commit, sent, committed>>

Holder(s, e) ==
    \/ s \in Config[conf[e]]
    \/ ~ Rule("the new seeds hold it first") /\ s \in Config[Before(conf[e])]

Sync(s, e) ==
    /\ phase[e] # "idle" /\ Holder(s, e)
    /\ promised[s] <= e /\ accepted[s] < e
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, base[e])]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ Note(s, e)
    /\ sent' = sent \cup {Ack(s, e, base[e])}
    /\ UNCHANGED <<known, conf, epochVars, committed>>

Activate(e) ==
    /\ phase[e] = "sync"
    /\ LET holders == AckedBy(e, base[e]) IN
        \/ Majority(conf[e], holders)
        \/ ~ Rule("the new seeds hold it first") /\ Majority(Before(conf[e]), holders)
    /\ phase' = [phase EXCEPT ![e] = "active"]
    /\ commit' = [commit EXCEPT ![e] = base[e]]
    /\ CommitUpTo(e, base[e])
    /\ UNCHANGED <<seedVars, conf, clog, base, sent>>

\* The coordinator says that its epoch is active: its configuration is established.
Learn(s, e) ==
    /\ phase[e] = "active" /\ accepted[s] = e /\ known[s] < conf[e]
    /\ known' = [known EXCEPT ![s] = conf[e]]
    /\ UNCHANGED <<promised, noted, log, accepted, conf, epochVars, sent, committed>>

-------------------------------------------------------------------------------
(* Publications *)

Publish(e, p) ==
    /\ phase[e] = "active"
    /\ \A k \in DOMAIN clog[e] : clog[e][k].what # p
    /\ clog' = [clog EXCEPT ![e] = Append(@, [epoch |-> e, what |-> p])]
    /\ UNCHANGED <<seedVars, conf, phase, base, commit, sent, committed>>

Accept(s, e, n) ==
    /\ accepted[s] = e /\ promised[s] = e
    /\ n > Len(log[s]) /\ n <= Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ sent' = sent \cup {Ack(s, e, n)}
    /\ UNCHANGED <<promised, noted, known, accepted, conf, epochVars, committed>>

Commit(e, n) ==
    /\ phase[e] = "active"
    /\ n > commit[e] /\ n <= Len(clog[e])
    /\ \/ Majority(conf[e], AckedBy(e, n))
       \/ ~ Rule("the new seeds hold it first") /\ Majority(Before(conf[e]), AckedBy(e, n))
    /\ commit' = [commit EXCEPT ![e] = n]
    /\ CommitUpTo(e, n)
    /\ UNCHANGED <<seedVars, conf, phase, clog, base, sent>>

-------------------------------------------------------------------------------

Next == \E e \in Epoch :
    \/ \E c \in Number : Stand(e, c)
    \/ Elect(e) \/ Activate(e)
    \/ \E p \in Publication : Publish(e, p)
    \/ \E n \in 1..Len(clog[e]) : Commit(e, n)
    \/ \E s \in Seed :
        \/ Promise(s, e) \/ Sync(s, e) \/ Learn(s, e)
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

\* A later epoch is never one of an earlier configuration, once both are elected.
ConfigurationsRise ==
    \A e, f \in Epoch : e < f /\ phase[e] = "active" /\ phase[f] # "idle" => conf[e] <= conf[f]

\* The seeds that were left out can be switched off: those of the new configuration hold all that
\* is committed, in each majority of them.
OldSeedsAreFree ==
    \A e \in Epoch : phase[e] = "active" /\ ~ (\E f \in Epoch : f > e /\ phase[f] # "idle") =>
        \A c \in committed : \A some \in SUBSET Config[conf[e]] : Majority(conf[e], some) =>
            \E s \in some : Len(log[s]) >= c.place /\ log[s][c.place] = c.entry

-------------------------------------------------------------------------------
(* Witnesses: each must be violated, or the models above say nothing. *)

NeverCommittedByBoth ==
    ~ \E c, d \in committed : c.place < d.place /\ conf[c.epoch] < conf[d.epoch]
NeverTriedAgain ==
    ~ \E e, f \in Epoch : e < f /\ conf[e] > 1 /\ conf[f] = conf[e]
        /\ phase[e] = "sync" /\ phase[f] = "active" /\ committed # {}
===============================================================================
