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
    learnt,     \* per member: how far it applied the log
    given,      \* who promised which epoch to whom: <<seed, epoch, candidate>>
    electors,   \* per epoch: the promises that it was elected with
    note,       \* per seed: the losses that it noted, as <<seed, incarnation>>
    past,       \* messages of seeds from before they lost their vote records
    conf,       \* per epoch: the number of the list of seeds that elected it
    seats,      \* per epoch: the seeds of that list
    contents    \* what was said of entries: <<entry, digest of its content>>

lists == <<conf, seats>>
notes == <<given, electors, note, past, lists>>
traceVars == <<coldVars, run, line, owner, learnt, notes, contents>>

AnyPublication == 1..MostPublications
Nobody == ""

\* In place of `Symmetry`, which TLC would work out at its start: all orders of all publications.
NoSymmetry == {}

TraceInit ==
    /\ CInit
    /\ run \in 1..Len(Traces) /\ line = 1
    /\ owner = [e \in Epoch |-> Nobody]
    /\ learnt = [m \in Member |-> 0]
    /\ given = {}
    /\ electors = [e \in Epoch |-> {}]
    /\ note = [s \in Seed |-> {}]
    /\ past = {}
    /\ conf = [e \in Epoch |-> 0]
    /\ seats = [e \in Epoch |-> {}]
    /\ contents = {}

it == Traces[run][line]

\* In place of `Majority`: those who voted or acked, of the seeds of this epoch's list. Others may
\* have the log as well: a member takes it before a list has it as a seed.
Counted == IF it.name = "Elect" THEN it.seats ELSE seats[it.epoch]
MajorityOf(list) == {q \in SUBSET Seed : Cardinality(q \cap list) * 2 > Cardinality(list)}
TraceMajority == MajorityOf(Counted)

Is(name) ==
    /\ line <= Len(Traces[run])
    /\ it.name = name
    /\ line' = line + 1
    /\ run' = run

Owned == owner[it.epoch] = it.node /\ UNCHANGED <<owner, learnt, notes>>
Free == UNCHANGED <<owner, learnt, notes>>
Idle == UNCHANGED coldVars

\* A crash shows as the start of a newer incarnation. What its vote file does not hold was
\* never sent, because messages wait for the disk: then no election can have counted it. The
\* fault assumption is not checked here: a run may break it, and recover by a cold start.
Started(s) ==
    /\ it.incarnation > incarnation[s]
    /\ it.promised <= promised[s]
    /\ \A m \in sent :
        m.kind \in {"promise", "cold"} /\ m.from = s /\ m \notin past /\ m.epoch > it.promised
            => fence[m.epoch][s] = 0
    /\ incarnation' = [incarnation EXCEPT ![s] = it.incarnation]
    /\ promised' = [promised EXCEPT ![s] = it.promised]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    \* Only its coordinators take a lost seed back, whether it started again or not.
    /\ status' = [status EXCEPT ![s] = IF status[s] = "lost" THEN "lost" ELSE "recovering"]
    /\ sent' = {m \in sent : m \in past \/ m.kind = "recover" \/ m.from # s
                                \/ m.epoch <= it.promised}
    /\ crashes' = crashes + 1
    /\ UNCHANGED <<epochVars, committed, history>>

\* The same without the vote record: the seed does not know yet what it lost, or that it did.
StartedLost(s) ==
    /\ incarnation' = [incarnation EXCEPT ![s] = it.incarnation]
    /\ promised' = [promised EXCEPT ![s] = it.promised]
    /\ log' = [log EXCEPT ![s] = <<>>]
    /\ accepted' = [accepted EXCEPT ![s] = 0]
    /\ status' = [status EXCEPT ![s] = "lost"]
    /\ crashes' = crashes + 1
    /\ UNCHANGED <<epochVars, sent, committed, history>>

\* It heard of the loss, and goes on as an incarnation above all that others know.
LoseVote(s) ==
    /\ it.incarnation > incarnation[s]
    /\ incarnation' = [incarnation EXCEPT ![s] = it.incarnation]
    /\ status' = [status EXCEPT ![s] = "lost"]
    /\ UNCHANGED <<promised, log, accepted, epochVars, sent, committed, crashes, history>>

\* A seed that started holds what its disk has: a log that it took once. Acks of more than that
\* were never sent, as they wait for the disk: then no coordinator of this history counted them.
Restored(s) ==
    /\ status[s] # "normal" /\ accepted[s] = 0 /\ log[s] = <<>>
    /\ it.length <= IF it.accepted = 0 THEN 0 ELSE Len(clog[it.accepted])
    /\ log' = [log EXCEPT ![s] =
            IF it.accepted = 0 THEN <<>> ELSE SubSeq(clog[it.accepted], 1, it.length)]
    /\ accepted' = [accepted EXCEPT ![s] = it.accepted]
    /\ status' = [status EXCEPT ![s] =
            IF status[s] = "lost" THEN "lost" ELSE it.standing]
    /\ sent' = {m \in sent : m.kind = "ack" /\ m.from = s /\ it.standing = "normal"
            => m.epoch < it.accepted \/ (m.epoch = it.accepted /\ m.length <= it.length)}
    /\ UNCHANGED <<promised, incarnation, epochVars, committed, crashes, history>>
    /\ \A e \in Epoch : phase[e] = "active" /\ (\A f \in Epoch : history[f] <= history[e])
            => AckedBy(e, commit[e])' \in MajorityOf(seats[e])

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

\* A log of this epoch is sent again: to a seed that lost its link, or one that had it on its
\* disk. The vote file may not have had the epoch yet.
SyncAgain(s, e, n) ==
    /\ status[s] = "normal" /\ accepted[s] = e /\ promised[s] <= e
    /\ n \in Len(log[s])..Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ sent' = sent \cup {AckOf(s, e, n)}
    /\ UNCHANGED <<incarnation, status, accepted, epochVars, committed, crashes, history>>

AcceptOrRepeat(s, e, n) ==
    \/ Warm(Accept(s, e, n))
    \/ accepted[s] = e /\ n = Len(log[s]) /\ Idle

\* Epochs of later lists are later ones. A list follows on one that was settled in this group, and
\* differs from it in one seed; there is one list of a number (Relist.tla).
Elected == {e \in Epoch : conf[e] > 0}
ListRises ==
    /\ it.voters \subseteq it.seats
    /\ \A f \in Elected :
        /\ f < it.epoch => conf[f] <= it.list
        /\ f > it.epoch => conf[f] >= it.list
        /\ conf[f] = it.list => seats[f] = it.seats
    /\ IF it.list = 1 THEN it.seats = Firsts[run]
       ELSE \E f \in Elected :
            \/ conf[f] = it.list
            \/ /\ conf[f] = it.list - 1 /\ phase[f] = "active"
               /\ Cardinality(seats[f] \ it.seats) + Cardinality(it.seats \ seats[f]) = 1
    /\ conf' = [conf EXCEPT ![it.epoch] = it.list]
    /\ seats' = [seats EXCEPT ![it.epoch] = it.seats]

Chosen(kind) == {m \in sent : m.kind = kind /\ m.epoch = it.epoch /\ m.from \in it.voters}
Voters(kind) ==
    /\ \E votes \in SUBSET Chosen(kind) :
        /\ {m.from : m \in votes} = it.voters
        \* No promise counts from before a loss that another one notes (Readmit.tla).
        /\ kind = "promise" => \A m, told \in votes : \A loss \in told.more.note :
                loss[1] = m.from => m.inc >= loss[2]
        /\ ElectFrom(it.epoch, votes)
        /\ electors' = [electors EXCEPT ![it.epoch] = votes]
    \* Each of them promised this epoch to this candidate (Candidates.tla).
    /\ \A s \in it.voters : <<s, it.epoch, it.node>> \in given
    /\ ListRises
    /\ UNCHANGED <<given, note, past>>
    /\ base'[it.epoch] = it.length

\* What a seed says of itself after its step.
After(s) ==
    /\ promised'[s] = it.promised /\ accepted'[s] = it.accepted
    /\ Len(log'[s]) = it.length
    /\ status'[s] = IF it.standing = "returning" THEN "lost" ELSE it.standing

\* The promise says which losses it notes, of this election and of earlier ones.
PromiseTo(s) ==
    /\ given' = given \cup {<<s, it.epoch, it.candidate>>}
    /\ note' = [note EXCEPT ![s] = @ \cup it.named]
    /\ IF it.cold THEN Warm(ColdPromise(s, it.epoch))
       ELSE Warm(PromiseWith(s, it.epoch, [named |-> it.named, note |-> note'[s]]))
    /\ UNCHANGED <<owner, learnt, electors, past, lists>>

\* The quorum of this epoch is of others, and was asked for this very loss.
ElectedFor(s) ==
    \A m \in electors[it.epoch] :
        m.from # s /\ m.kind = "promise" /\ <<s, it.registered>> \in m.more.named

Held == {c.place : c \in committed}

\* Entries that are the same by name have the same content, in every log. A digest may belong to
\* two entries, but an entry has one; a line has those of the last entries of its log.
Last(l) ==
    {<<l[Len(l) - Len(it.digests) + k], it.digests[k]>> : k \in DOMAIN it.digests}
SameContents(l) ==
    /\ Len(it.digests) <= Len(l)
    /\ \A told \in Last(l), known \in contents : told[1] = known[1] => told[2] = known[2]
    /\ contents' = contents \cup Last(l)
\* A member that is no seed has no log here: what it applied is what was committed at that place.
Applied ==
    /\ \A k \in DOMAIN it.digests : \E c \in committed :
        /\ c.place = it.committed - Len(it.digests) + k
        /\ <<c.entry, it.digests[k]>> \in contents
    /\ UNCHANGED contents
Contents ==
    IF it.digests = <<>> THEN UNCHANGED contents
    ELSE IF it.name = "Publish" THEN SameContents(clog'[it.epoch])
    ELSE IF it.name = "Learn" THEN Applied
    ELSE SameContents(log'[it.node])

TraceStep ==
    \/ /\ Is("Start") /\ learnt' = [learnt EXCEPT ![it.node] = 0]
       /\ IF it.lost
          THEN /\ StartedLost(it.node)
               /\ note' = [note EXCEPT ![it.node] = {}]
               /\ past' = past \cup {m \in sent : m.kind # "recover" /\ m.from = it.node}
          ELSE Started(it.node) /\ UNCHANGED <<note, past>>
       /\ UNCHANGED <<owner, given, electors, lists>>
    \/ Is("Restore") /\ Restored(it.node) /\ Free
    \* One that its configuration does not name as a seed starts as a member that only follows: the
    \* log that it says it has counts for nothing.
    \/ /\ Is("Lose") /\ LoseVote(it.node) /\ Free
       /\ IF it.node \in Firsts[run] THEN After(it.node)
          ELSE promised'[it.node] = it.promised /\ it.standing = "lost"
    \/ Is("Promise") /\ PromiseTo(it.node) /\ After(it.node)
    \/ /\ Is("Elect") /\ owner[it.epoch] = Nobody
       /\ IF it.cold
          THEN /\ it.voters = it.seats /\ Voters("cold")
               /\ history' = [f \in Epoch |-> IF f >= it.epoch THEN Newest + 1 ELSE history[f]]
          ELSE Warm(Voters("promise"))
       /\ owner' = [owner EXCEPT ![it.epoch] = it.node]
       \* Under a new history members apply the log from its beginning.
       /\ learnt' = IF it.cold THEN [m \in Member |-> 0] ELSE learnt
    \/ /\ Is("Sync") /\ Free
       /\ IF accepted[it.node] = it.epoch THEN SyncAgain(it.node, it.epoch, it.length)
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
    \/ /\ Is("Readmit") /\ Owned
       /\ IF status[it.seed] = "normal" /\ fence[it.epoch][it.seed] = it.registered THEN Idle
          ELSE Warm(status[it.seed] = "lost" /\ ElectedFor(it.seed) /\ HandLog(it.seed, it.epoch))
       /\ Len(clog[it.epoch]) = it.length /\ incarnation[it.seed] = it.registered
    \/ /\ Is("Install") /\ Free
       /\ IF accepted[it.node] = it.epoch THEN AcceptOrRepeat(it.node, it.epoch, it.length)
          ELSE Warm(\E m \in sent : InstallFrom(it.node, m) /\ m.epoch = it.epoch
                                    /\ Len(m.log) = it.length)
       /\ After(it.node)
    \/ /\ Is("Learn") /\ it.committed > learnt[it.node]
       /\ 1..it.committed \subseteq Held
       /\ learnt' = [learnt EXCEPT ![it.node] = it.committed]
       /\ Idle /\ UNCHANGED <<owner, notes>>
    \/ /\ Is("Forget") /\ learnt' = [learnt EXCEPT ![it.node] = 0]
       /\ Idle /\ UNCHANGED <<owner, notes>>
    \/ Is("Stop") /\ Idle /\ Free

TraceNext == TraceStep /\ Contents

TraceSpec == TraceInit /\ [][TraceNext]_traceVars

Explained == line = Len(Traces[run]) + 1 => PrintT(<<"EXPLAINED", run>>)
Reached == PrintT(<<"REACHED", run, line>>)
===============================================================================
