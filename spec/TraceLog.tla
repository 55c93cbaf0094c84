------------------------------- MODULE TraceLog -------------------------------
(* Are recorded runs behaviours of GroupLog? `Traces` (a module that            *)
(* spec/traces.py writes) holds a sequence of runs, each one group's steps in   *)
(* order. A line names the action, who took it and what the state was after it, *)
(* so each line has at most one successor and the check never branches. A run   *)
(* is explained if every line of it is; `Explained` prints those that are.      *)
EXTENDS GroupLog, Traces

VARIABLES
    run,        \* which of the runs
    line,       \* the next line of it
    owner,      \* per epoch: the member that was elected
    learnt      \* per member: how far it applied the log

traceVars == <<logVars, run, line, owner, learnt>>

AnyPublication == 1..MostPublications
Nobody == ""

TraceInit ==
    /\ Init
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

\* A crash shows as the start of a newer incarnation; the fault assumption is not
\* checked here: a run may break it, and then it has to recover by other rules.
Started(s) ==
    /\ it.incarnation > incarnation[s]
    /\ incarnation' = [incarnation EXCEPT ![s] = it.incarnation]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ status' = [status EXCEPT ![s] = it.status]
    /\ crashes' = crashes + 1
    /\ UNCHANGED <<promised, epochVars, sent, committed>>

TraceNext ==
    \/ Is("Start") /\ Started(it.node) /\ Free
    \/ /\ Is("Promise") /\ Promise(it.node, it.epoch) /\ Free
       /\ Len(log[it.node]) = it.length /\ accepted[it.node] = it.accepted
    \/ /\ Is("Elect") /\ owner[it.epoch] = Nobody
       /\ ElectFrom(it.epoch, {m \in Promises(it.epoch) : m.from \in it.voters})
       /\ base'[it.epoch] = it.length
       /\ owner' = [owner EXCEPT ![it.epoch] = it.node] /\ UNCHANGED learnt
    \/ /\ Is("Sync") /\ Sync(it.node, it.epoch) /\ Free
       /\ Len(log'[it.node]) = it.length
    \/ /\ Is("Activate") /\ Activate(it.epoch) /\ Owned
       /\ commit'[it.epoch] = it.length
    \/ /\ Is("Publish") /\ Publish(it.epoch, it.publication) /\ Owned
       /\ Len(clog'[it.epoch]) = it.length
    \/ /\ Is("Accept") /\ Accept(it.node, it.epoch, it.length) /\ Free
    \/ /\ Is("Commit") /\ Commit(it.epoch, it.length) /\ Owned
    \/ /\ Is("Register") /\ Register(it.seed, it.epoch) /\ Owned
       /\ Len(clog[it.epoch]) = it.length /\ incarnation[it.seed] = it.incarnation
    \/ /\ Is("Install") /\ Free
       /\ \E m \in sent : InstallFrom(it.node, m) /\ m.epoch = it.epoch
                            /\ Len(m.log) = it.length
    \/ /\ Is("Learn") /\ it.length > learnt[it.node]
       /\ \A k \in 1..it.length : \E c \in committed : c.place = k
       /\ learnt' = [learnt EXCEPT ![it.node] = it.length]
       /\ UNCHANGED <<logVars, owner>>
    \/ /\ Is("Forget") /\ learnt' = [learnt EXCEPT ![it.node] = 0]
       /\ UNCHANGED <<logVars, owner>>

TraceSpec == TraceInit /\ [][TraceNext]_traceVars

Explained == line = Len(Traces[run]) + 1 => PrintT(<<"EXPLAINED", run>>)
Reached == PrintT(<<"REACHED", run, line>>)
===============================================================================
