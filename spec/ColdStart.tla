------------------------------ MODULE ColdStart -------------------------------
(* Seeds fail without any bound, so that the normal ones are no majority any    *)
(* more and no coordinator is left to hand over a log. Once *every* seed is in  *)
(* contact they elect with full attendance, take the best log that survived,    *)
(* and start a new history id: positions of different histories are never       *)
(* compared, so what was lost is said and never papered over.                   *)
EXTENDS GroupLog

VARIABLES
    history,    \* per epoch: its history id
    attending   \* per seed: the cold election (an epoch) it promised to join, 0 if none

coldVars == <<history, attending>>
allVars == <<logVars, coldVars>>

CInit ==
    /\ Init
    /\ history = [e \in Epoch |-> 0]
    /\ attending = [s \in Seed |-> 0]

\* Without the fault assumption.
FreeCrash(s) ==
    /\ crashes < MaxCrash
    /\ crashes' = crashes + 1
    /\ Restarted(s)
    /\ attending' = [attending EXCEPT ![s] = 0]
    /\ UNCHANGED <<epochVars, sent, committed, history>>

NoMajority == Normal \notin Majority

\* Any seed may promise a cold election, whatever its status: it only says what it has.
Attend(s, e) ==
    /\ NoMajority
    /\ e > promised[s]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ attending' = [attending EXCEPT ![s] = e]
    /\ UNCHANGED <<incarnation, status, log, accepted, epochVars, sent, committed, crashes, history>>

ColdQuorum == IF Rule("every seed attends") THEN {Seed} ELSE Majority

NewHistory(e) == 1 + Cardinality({f \in Epoch : f < e /\ history[f] > 0})

\* The log of the best normal seed; nothing where no seed kept one.
Best(seeds) ==
    LET kept == seeds \cap Normal IN
    IF kept = {} THEN <<>>
    ELSE log[CHOOSE b \in kept : \A o \in kept :
            \/ accepted[b] > accepted[o]
            \/ accepted[b] = accepted[o] /\ Len(log[b]) >= Len(log[o])]

ColdElect(e) ==
    /\ phase[e] = "idle"
    /\ LET seeds == {s \in Seed : attending[s] = e /\ promised[s] = e} IN
        /\ seeds \in ColdQuorum
        /\ clog' = [clog EXCEPT ![e] = Best(seeds)]
        /\ base' = [base EXCEPT ![e] = Len(Best(seeds))]
        /\ fence' = [fence EXCEPT ![e] = [s \in Seed |-> incarnation[s]]]
        /\ phase' = [phase EXCEPT ![e] = "sync"]
        /\ history' = [f \in Epoch |-> IF f >= e /\ Rule("a cold start is a new history")
                                       THEN NewHistory(e) ELSE history[f]]
        \* The seeds that attended vote again: they take this epoch's log.
        /\ status' = [s \in Seed |-> IF s \in seeds THEN "normal" ELSE status[s]]
        /\ log' = [s \in Seed |-> IF s \in seeds THEN Best(seeds) ELSE log[s]]
        /\ accepted' = [s \in Seed |-> IF s \in seeds THEN e ELSE accepted[s]]
        /\ sent' = sent \cup {AckOf(s, e, Len(Best(seeds))) : s \in seeds}
    /\ UNCHANGED <<promised, incarnation, commit, committed, crashes, attending>>

Warm(action) == action /\ UNCHANGED coldVars

CNext ==
    \/ \E e \in Epoch :
        \/ ColdElect(e)
        \/ Warm(Elect(e)) \/ Warm(Activate(e))
        \/ \E p \in Publication : Warm(Publish(e, p))
        \/ \E n \in 1..Len(clog[e]) : Warm(Commit(e, n))
        \/ \E s \in Seed :
            \/ Attend(s, e)
            \/ Warm(Promise(s, e)) \/ Warm(Sync(s, e)) \/ Warm(Register(s, e))
            \/ \E n \in 1..Len(clog[e]) : Warm(Accept(s, e, n))
    \/ \E s \in Seed : FreeCrash(s) \/ Warm(Install(s))

CSpec == CInit /\ [][CNext]_allVars

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
            \/ \A s \in Normal : accepted[s] >= e \/ ~(Len(log[s]) >= c.place /\ log[s][c.place] = c.entry)

NeverColdStarted ==
    ~ \E c \in committed : history[c.epoch] > 0 /\ \E d \in committed : history[d.epoch] = 0
===============================================================================
