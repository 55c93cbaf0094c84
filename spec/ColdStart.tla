------------------------------ MODULE ColdStart -------------------------------
(* Seeds fail without any bound, so that the normal ones are no majority any    *)
(* more and no coordinator is left to hand over a log. With *every* seed in     *)
(* contact they elect: restarted seeds may promise here, because nobody is      *)
(* missing. The best log that survived is taken over under a new history id:    *)
(* positions of different histories are never compared, so what was lost is     *)
(* said and never papered over.                                                 *)
EXTENDS GroupLog

VARIABLES history    \* per epoch: its history id

coldVars == <<logVars, history>>

CInit == Init /\ history = [e \in Epoch |-> 0]

\* Without the fault assumption.
FreeCrash(s) ==
    /\ crashes < MaxCrash
    /\ crashes' = crashes + 1
    /\ Restarted(s)
    /\ UNCHANGED <<epochVars, sent, committed>>

ColdPromise(s, e) ==
    /\ e > promised[s]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup
        {[kind |-> "cold", from |-> s, epoch |-> e, accepted |-> accepted[s],
          log |-> log[s], inc |-> incarnation[s], more |-> <<>>]}
    /\ UNCHANGED <<incarnation, status, log, accepted, epochVars, committed, crashes>>

ColdPromises(e) == {m \in sent : m.kind = "cold" /\ m.epoch = e}
ColdQuorum == IF Rule("every seed attends") THEN {Seed} ELSE Majority
Newest == Cardinality({e \in Epoch : phase[e] # "idle" /\ history[e] > 0})

ColdElect(e) == \E votes \in SUBSET ColdPromises(e) :
    /\ {m.from : m \in votes} \in ColdQuorum
    /\ ElectFrom(e, votes)
    /\ history' = [f \in Epoch |->
            IF f >= e /\ Rule("a cold start is a new history") THEN Newest + 1 ELSE history[f]]

\* Whoever takes this log votes again: in the incarnation that promised, because a later
\* one may have lost what it acknowledged since. (Links are in order, and this log is sent
\* only before the epoch is active: so a message of it never reaches a later incarnation
\* that has something to lose.)
ColdSync(s, e) ==
    /\ phase[e] # "idle"
    /\ \E m \in ColdPromises(e) : m.from = s
            /\ (Rule("a cold log is for who promised it") => m.inc = incarnation[s])
    /\ promised[s] <= e /\ accepted[s] < e
    /\ status' = [status EXCEPT ![s] = "normal"]
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, base[e])]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {AckOf(s, e, base[e])}
    /\ UNCHANGED <<incarnation, epochVars, committed, crashes>>

Warm(action) == action /\ UNCHANGED history

CNext ==
    \/ \E e \in Epoch :
        \/ ColdElect(e)
        \/ Warm(Elect(e)) \/ Warm(Activate(e))
        \/ \E p \in Publication : Warm(Publish(e, p))
        \/ \E n \in 1..Len(clog[e]) : Warm(Commit(e, n))
        \/ \E s \in Seed :
            \/ Warm(ColdPromise(s, e)) \/ Warm(ColdSync(s, e))
            \/ Warm(Promise(s, e)) \/ Warm(Sync(s, e)) \/ Warm(Register(s, e))
            \/ \E n \in 1..Len(clog[e]) : Warm(Accept(s, e, n))
    \/ \E s \in Seed : Warm(FreeCrash(s)) \/ Warm(Install(s))

CSpec == CInit /\ [][CNext]_coldVars

\* I1 and I2 within one history.
SurvivesInHistory ==
    \A c \in committed : \A e \in Epoch :
        e > c.epoch /\ phase[e] # "idle" /\ history[e] = history[c.epoch]
            => Len(clog[e]) >= c.place /\ clog[e][c.place] = c.entry
AgreementInHistory ==
    \A c, d \in committed :
        history[c.epoch] = history[d.epoch] /\ c.place = d.place => c.entry = d.entry

\* A new history holds every committed entry that a normal seed still had.
KeepsWhatSurvived ==
    \A c \in committed : \A e \in Epoch :
        (e > c.epoch /\ phase[e] # "idle" /\ history[e] # history[c.epoch]) =>
            \/ Len(clog[e]) >= c.place /\ clog[e][c.place] = c.entry
            \/ \A s \in Normal :
                accepted[s] >= e \/ ~(Len(log[s]) >= c.place /\ log[s][c.place] = c.entry)

NeverColdStarted ==
    ~ \E c \in committed : history[c.epoch] > 0 /\ \E d \in committed : history[d.epoch] = 0
===============================================================================
