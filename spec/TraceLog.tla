------------------------------- MODULE TraceLog -------------------------------
(* Are recorded runs behaviours of ColdStart (GroupLog with cold starts)?       *)
(* `Traces` (a module that                                                     *)
(* spec/traces.py writes) holds a sequence of runs, each one group's steps in   *)
(* order. A line names the action, who took it and what the state was after it, *)
(* so each line has at most one successor and the check never branches. A run   *)
(* is explained if every line of it is; `Explained` prints those that are.      *)
EXTENDS ColdStart, Traces

VARIABLES
    run,        \* which of the runs
    line,       \* the next line of it
    owner,      \* per epoch: the member that was elected
    learnt      \* per member: how far it applied the log

traceVars == <<coldVars, run, line, owner, learnt>>

AnyPublication == 1..MostPublications
Nobody == ""

\* In place of `Symmetry`, which TLC would work out at its start: all orders of all publications.
NoSymmetry == {}

TraceInit ==
    /\ CInit
    /\ run \in 1..Len(Traces) /\ line = 1
    /\ owner = [e \in Epoch |-> Nobody]
    /\ learnt = [m \in Member |-> 0]

it == Traces[run][line]

Is(name) ==
    /\ line <= Len(Traces[run])
    /\ it.name = name
    /\ line' = line + 1
    /\ run' = run

Owned == owner[it.epoch] = it.node /\ UNCHANGED <<owner, learnt>>
Free == UNCHANGED <<owner, learnt>>
Idle == UNCHANGED coldVars

\* A crash shows as the start of a newer incarnation. What its vote file does not hold was
\* never sent, because messages wait for the disk: then no election can have counted it. The
\* fault assumption is not checked here: a run may break it, and recover by a cold start.
Started(s) ==
    /\ it.incarnation > incarnation[s]
    /\ it.promised <= promised[s]
    /\ \A m \in sent :
        m.kind \in {"promise", "cold"} /\ m.from = s /\ m.epoch > it.promised
            => fence[m.epoch][s] = 0
    /\ incarnation' = [incarnation EXCEPT ![s] = it.incarnation]
    /\ promised' = [promised EXCEPT ![s] = it.promised]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ status' = [status EXCEPT ![s] = "recovering"]
    /\ sent' = {m \in sent : m.kind = "recover" \/ m.from # s \/ m.epoch <= it.promised}
    /\ crashes' = crashes + 1
    /\ UNCHANGED <<epochVars, committed, history>>

\* A seed that comes late takes what was appended meanwhile in the same step; one that
\* lost its link only takes what it lacks.
SyncTo(s, e, n) ==
    /\ status[s] = "normal" /\ phase[e] # "idle"
    /\ promised[s] <= e /\ accepted[s] < e
    /\ n \in base[e]..Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {AckOf(s, e, n)}
    /\ UNCHANGED <<incarnation, status, epochVars, committed, crashes, history>>

AcceptOrRepeat(s, e, n) ==
    \/ Warm(Accept(s, e, n))
    \/ accepted[s] = e /\ n = Len(log[s]) /\ Idle

Chosen(kind) == {m \in sent : m.kind = kind /\ m.epoch = it.epoch /\ m.from \in it.voters}
Voters(kind) ==
    /\ \E votes \in SUBSET Chosen(kind) :
        /\ {m.from : m \in votes} = it.voters
        /\ ElectFrom(it.epoch, votes)
    /\ base'[it.epoch] = it.length

\* What a seed says of itself after its step.
After(s) ==
    /\ promised'[s] = it.promised /\ accepted'[s] = it.accepted
    /\ Len(log'[s]) = it.length /\ status'[s] = it.standing

Held == {c.place : c \in committed}

TraceNext ==
    \/ Is("Start") /\ Started(it.node) /\ learnt' = [learnt EXCEPT ![it.node] = 0]
       /\ UNCHANGED owner
    \/ /\ Is("Promise") /\ Free
       /\ Warm(IF it.cold THEN ColdPromise(it.node, it.epoch) ELSE Promise(it.node, it.epoch))
       /\ After(it.node)
    \/ /\ Is("Elect") /\ owner[it.epoch] = Nobody
       /\ IF it.cold
          THEN /\ it.voters = Seed /\ Voters("cold")
               /\ history' = [f \in Epoch |-> IF f >= it.epoch THEN Newest + 1 ELSE history[f]]
          ELSE Warm(Voters("promise"))
       /\ owner' = [owner EXCEPT ![it.epoch] = it.node]
       \* Under a new history members apply the log from its beginning.
       /\ learnt' = IF it.cold THEN [m \in Member |-> 0] ELSE learnt
    \/ /\ Is("Sync") /\ Free
       /\ IF accepted[it.node] = it.epoch THEN AcceptOrRepeat(it.node, it.epoch, it.length)
          ELSE SyncTo(it.node, it.epoch, it.length)
       /\ After(it.node)
    \/ /\ Is("ColdSync") /\ Free
       /\ IF accepted[it.node] = it.epoch THEN AcceptOrRepeat(it.node, it.epoch, it.length)
          ELSE Warm(ColdSync(it.node, it.epoch))
       /\ After(it.node)
    \/ /\ Is("Activate") /\ Warm(Activate(it.epoch)) /\ Owned
       /\ commit'[it.epoch] = it.committed
    \/ /\ Is("Publish") /\ Warm(Publish(it.epoch, it.publication)) /\ Owned
       /\ Len(clog'[it.epoch]) = it.length
    \/ /\ Is("Accept") /\ AcceptOrRepeat(it.node, it.epoch, it.length) /\ Free
       /\ After(it.node)
    \/ /\ Is("Commit") /\ Warm(Commit(it.epoch, it.committed)) /\ Owned
    \/ /\ Is("Register") /\ Owned
       \* A seed that asked twice is registered twice, the second time for nothing.
       /\ IF status[it.seed] = "normal" /\ fence[it.epoch][it.seed] = it.registered THEN Idle
          ELSE Warm(Register(it.seed, it.epoch))
       /\ Len(clog[it.epoch]) = it.length /\ incarnation[it.seed] = it.registered
    \/ /\ Is("Install") /\ Free
       /\ IF accepted[it.node] = it.epoch THEN AcceptOrRepeat(it.node, it.epoch, it.length)
          ELSE Warm(\E m \in sent : InstallFrom(it.node, m) /\ m.epoch = it.epoch
                                    /\ Len(m.log) = it.length)
       /\ After(it.node)
    \/ /\ Is("Learn") /\ it.committed > learnt[it.node]
       /\ 1..it.committed \subseteq Held
       /\ learnt' = [learnt EXCEPT ![it.node] = it.committed]
       /\ Idle /\ UNCHANGED owner
    \/ Is("Forget") /\ learnt' = [learnt EXCEPT ![it.node] = 0] /\ Idle /\ UNCHANGED owner
    \/ Is("Stop") /\ Idle /\ Free

TraceSpec == TraceInit /\ [][TraceNext]_traceVars

Explained == line = Len(Traces[run]) + 1 => PrintT(<<"EXPLAINED", run>>)
Reached == PrintT(<<"REACHED", run, line>>)
===============================================================================
