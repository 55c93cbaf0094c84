-------------------------------- MODULE Forget --------------------------------
(* The table of sequence numbers of one group, which forgets subjects.          *)
(*                                                                              *)
(* Forgetting is an entry of the log. It takes a subject out of the table and   *)
(* raises the floor of the group at least to its last number; a subject that is *)
(* not in the table begins above the floor. The log stands here in the form     *)
(* that GroupLog.tla proves of it, as in Delivery.tla: a committed part, and a  *)
(* tail of which the next epoch keeps any part. One client follows one of the   *)
(* subjects from its first message on, at members that are behind by any length *)
(* and whose caches have dropped any messages.                                  *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Subject,    \* the subjects
    Watched,    \* the one that the client follows
    MaxLength,  \* of the log
    MaxEpoch,
    MaxVisit,   \* how often the client connects
    Off

Rule(name) == name \notin Off
Max(a, b) == IF a > b THEN a ELSE b

VARIABLES
    log,        \* entries: messages, and forgotten subjects with the floor that they leave
    committed,  \* how many of them are committed
    epoch,
    table,      \* the coordinator's: subject -> last number, 0 for one that it does not hold
    floor,      \* the coordinator's
    on,         \* the client is connected ...
    view,       \* ... to a member that has delivered so much of the log
    at,         \* the client's position: epoch and number of its last message
    seen,       \* places of the messages that it has
    told,       \* it was told that it may lack messages up to this place
    false,      \* it was told so although its position excludes that
    visits

logVars == <<log, committed, epoch, table, floor>>
clientVars == <<on, view, at, seen, told, false, visits>>
vars == <<logVars, clientVars>>

Init ==
    /\ log = <<>> /\ committed = 0 /\ epoch = 1
    /\ table = [s \in Subject |-> 0] /\ floor = 0
    /\ on = FALSE /\ view = 0 /\ at = [epoch |-> 0, seq |-> 0]
    /\ seen = {} /\ told = 0 /\ false = FALSE /\ visits = 0

-------------------------------------------------------------------------------
(* The log *)

IsMessage(i, s) == log[i].kind = "message" /\ log[i].subject = s

Publish(s) ==
    LET before == IF table[s] # 0 THEN table[s]
                  ELSE IF Rule("a subject begins above the floor") THEN floor ELSE 0 IN
    /\ Len(log) < MaxLength
    /\ log' = Append(log, [kind |-> "message", subject |-> s, epoch |-> epoch, seq |-> before + 1])
    /\ table' = [table EXCEPT ![s] = before + 1]
    /\ UNCHANGED <<committed, epoch, floor, clientVars>>

Forget(s) ==
    LET raised == IF Rule("forgetting raises the floor") THEN Max(floor, table[s]) ELSE floor IN
    /\ Len(log) < MaxLength /\ table[s] # 0
    /\ log' = Append(log, [kind |-> "forget", subject |-> s, epoch |-> epoch, seq |-> raised])
    /\ table' = [table EXCEPT ![s] = 0]
    /\ floor' = raised
    /\ UNCHANGED <<committed, epoch, clientVars>>

Commit ==
    /\ committed < Len(log)
    /\ committed' = committed + 1
    /\ UNCHANGED <<log, epoch, table, floor, clientVars>>

\* What a log says of a subject, and of the floor.
RECURSIVE LastOf(_, _)
LastOf(l, s) ==
    IF l = <<>> THEN 0
    ELSE LET last == l[Len(l)] IN
         IF last.subject # s THEN LastOf(SubSeq(l, 1, Len(l) - 1), s)
         ELSE IF last.kind = "message" THEN last.seq ELSE 0
RECURSIVE FloorOf(_)
FloorOf(l) ==
    IF l = <<>> THEN 0
    ELSE IF l[Len(l)].kind = "forget" THEN l[Len(l)].seq ELSE FloorOf(SubSeq(l, 1, Len(l) - 1))

\* The next coordinator has a copy of the tables at some place, and the entries behind it.
Succeed(n, copied) ==
    LET kept == SubSeq(log, 1, n)
        behind == FloorOf(SubSeq(kept, copied + 1, n)) IN
    /\ epoch < MaxEpoch
    /\ epoch' = epoch + 1
    /\ log' = kept
    /\ table' = [s \in Subject |-> LastOf(kept, s)]
    /\ floor' = IF Rule("the floor goes with the tables") THEN FloorOf(kept) ELSE behind
    /\ UNCHANGED <<committed, clientVars>>

-------------------------------------------------------------------------------
(* The client *)

\* Messages of the subject that a member knows, since it forgot it last.
Known(v) == {i \in 1..v : IsMessage(i, Watched) /\
    \A j \in i..v : ~ (log[j].kind = "forget" /\ log[j].subject = Watched)}
Newest(v) == CHOOSE i \in Known(v) : \A j \in Known(v) : j <= i
Position(i) == [epoch |-> log[i].epoch, seq |-> log[i].seq]

\* What it counts for at a member that does not know it: it may have had any number up to the floor.
Unknown(v) == IF Rule("the floor stands for what is not known") THEN FloorOf(SubSeq(log, 1, v))
              ELSE at.seq
Reached(v) == IF Known(v) = {} THEN Unknown(v) ELSE log[Newest(v)].seq
\* The number behind which a member has every message, if it dropped those up to place `gone`.
Whole(v, gone) ==
    LET held == {i \in Known(v) : i > gone} IN
    IF held = {} THEN Reached(v)
    ELSE log[CHOOSE i \in held : \A j \in held : i <= j].seq - 1

Missed(v) == {i \in Known(v) : log[i].seq > at.seq}
Unseen(v) == {i \in 1..v : IsMessage(i, Watched)} \ seen

\* A member that is behind the client's position has it wait.
Come(v, gone) ==
    /\ ~ on /\ visits < MaxVisit
    /\ at.seq <= Reached(v)
    /\ visits' = visits + 1 /\ on' = TRUE /\ view' = v
    /\ IF at.seq < Whole(v, gone)
       THEN /\ told' = Max(told, v)
            /\ false' = (false \/ (Unseen(v) = {} /\ at.seq >= FloorOf(SubSeq(log, 1, v))))
            /\ UNCHANGED <<at, seen>>
       ELSE /\ seen' = seen \cup Missed(v)
            /\ at' = IF Missed(v) = {} THEN at ELSE Position(Newest(v))
            /\ UNCHANGED <<told, false>>
    /\ UNCHANGED logVars

\* A client drops what is not beyond its position.
Beyond(i) == log[i].epoch > at.epoch \/ (log[i].epoch = at.epoch /\ log[i].seq > at.seq)

Deliver ==
    /\ on /\ view < committed
    /\ view' = view + 1
    /\ IF IsMessage(view + 1, Watched) /\ Beyond(view + 1)
       THEN at' = Position(view + 1) /\ seen' = seen \cup {view + 1}
       ELSE UNCHANGED <<at, seen>>
    /\ UNCHANGED <<logVars, on, told, false, visits>>

Leave ==
    /\ on /\ on' = FALSE
    /\ UNCHANGED <<logVars, view, at, seen, told, false, visits>>

Next ==
    \/ \E s \in Subject : Publish(s) \/ Forget(s)
    \/ Commit
    \/ \E n \in committed..Len(log) : \E copied \in 0..committed : Succeed(n, copied)
    \/ \E v \in 0..committed : \E gone \in 0..v : Come(v, gone)
    \/ Deliver \/ Leave

Spec == Init /\ [][Next]_vars

-------------------------------------------------------------------------------

\* I4: the numbers of a subject rise along the log, so none is given twice; without a forgotten
\* subject by one.
NumbersRise ==
    \A i, j \in DOMAIN log : i < j /\ log[i].subject = log[j].subject
        /\ log[i].kind = "message" /\ log[j].kind = "message" => log[i].seq < log[j].seq

\* What the coordinator's table says is what the log says.
TableFollows ==
    /\ \A s \in Subject : table[s] = LastOf(log, s)
    /\ floor = FloorOf(log)

\* I7: a client has every message of its subject that its member delivered, or was told.
NoSilentLoss == on => Unseen(view) \subseteq 1..told

\* A client whose position is not below the floor is told of a loss only if there is one.
NoFalseGap == ~ false

NeverBornAgain ==
    ~ \E i, j, k \in DOMAIN log : i < j /\ j < k /\ k \in seen /\ i \in seen /\ told = 0
        /\ IsMessage(i, Watched) /\ IsMessage(k, Watched)
        /\ log[j].kind = "forget" /\ log[j].subject = Watched
===============================================================================
