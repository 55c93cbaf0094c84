------------------------------ MODULE Numbering -------------------------------
(* Positions of subjects. A group's log has entries of many subjects, and each  *)
(* subject is numbered by itself: 1, 2, 3 ... (docs/cluster.md, "How it works"). *)
(* The number comes from a table that goes with the log, because the entries    *)
(* that it follows from may be dropped: a member that lacks them gets a state,  *)
(* which is the table of the committed part, in their place. An uncommitted     *)
(* tail may be cut off, and the table has to go back with it.                   *)
(*                                                                              *)
(* As in Delivery.tla, `chosen` grows only at its end, and a member coordinates *)
(* only if it holds all of it.                                                  *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Member,
    Subject,
    MaxEpoch,
    MaxLength,     \* of any log
    Off

Rule(name) == name \notin Off
Epoch == 1..MaxEpoch

VARIABLES
    chosen,        \* the committed log
    epoch,         \* the newest epoch
    leader,        \* its coordinator
    base,          \* per member: so many entries are dropped, and the table stands for them
    log,           \* per member: the entries behind them
    table,         \* per member: the number of the last entry of each subject in base and log
    commit,        \* per member: how much of its log it knows to be committed
    of             \* per member: the epoch with whose log its own agrees

vars == <<chosen, epoch, leader, base, log, table, commit, of>>

Blank == [s \in Subject |-> 0]

Init ==
    /\ chosen = <<>> /\ epoch = 1 /\ leader \in Member
    /\ base = [m \in Member |-> 0] /\ log = [m \in Member |-> <<>>]
    /\ table = [m \in Member |-> Blank] /\ commit = [m \in Member |-> 0]
    /\ of = [m \in Member |-> 1]

Length(m) == base[m] + Len(log[m])

\* The table with entries taken back that stand at the end of the log.
RECURSIVE TakenBack(_, _)
TakenBack(numbers, tail) ==
    IF tail = <<>> THEN numbers
    ELSE LET last == tail[Len(tail)] IN
        TakenBack([numbers EXCEPT ![last.subject] = last.seq - 1],
                  SubSeq(tail, 1, Len(tail) - 1))

Tail1(m, n) == SubSeq(log[m], n - base[m] + 1, Len(log[m]))
TableAt(m, n) ==
    IF Rule("what is cut off is taken back") THEN TakenBack(table[m], Tail1(m, n)) ELSE table[m]
StateOf(m) ==
    IF Rule("a state is of what is committed")
    THEN TakenBack(table[m], Tail1(m, commit[m])) ELSE table[m]

RECURSIVE Added(_, _)
Added(numbers, entries) ==
    IF entries = <<>> THEN numbers
    ELSE Added([numbers EXCEPT ![entries[1].subject] = entries[1].seq],
               SubSeq(entries, 2, Len(entries)))

Publish(s) ==
    LET numbers == IF Rule("numbers follow on the tail too") THEN table[leader]
                   ELSE TakenBack(table[leader], Tail1(leader, commit[leader]))
        entry == [epoch |-> epoch, subject |-> s, seq |-> numbers[s] + 1]
    IN  /\ Length(leader) < MaxLength
        /\ log' = [log EXCEPT ![leader] = Append(@, entry)]
        /\ table' = [table EXCEPT ![leader][s] = entry.seq]
        /\ UNCHANGED <<chosen, epoch, leader, base, commit, of>>

Commit ==
    /\ commit[leader] < Length(leader)
    /\ chosen' = Append(chosen, log[leader][commit[leader] - base[leader] + 1])
    /\ commit' = [commit EXCEPT ![leader] = @ + 1]
    /\ UNCHANGED <<epoch, leader, base, log, table, of>>

Learn(m) ==
    /\ of[m] = epoch /\ commit[m] < Length(m) /\ commit[m] < commit[leader]
    /\ commit' = [commit EXCEPT ![m] = @ + 1]
    /\ UNCHANGED <<chosen, epoch, leader, base, log, table, of>>

Accept(m) ==
    /\ m # leader /\ of[m] = epoch /\ Length(m) < Length(leader) /\ Length(m) >= base[leader]
    /\ LET entry == log[leader][Length(m) - base[leader] + 1] IN
        /\ log' = [log EXCEPT ![m] = Append(@, entry)]
        /\ table' = [table EXCEPT ![m][entry.subject] = entry.seq]
    /\ UNCHANGED <<chosen, epoch, leader, base, commit, of>>

\* A newer coordinator's log in place of the tail: entries, or a state and entries.
Follow(m) ==
    /\ m # leader /\ of[m] < epoch
    /\ IF base[leader] <= commit[m]
       THEN LET rest == Tail1(leader, commit[m]) IN
            /\ log' = [log EXCEPT ![m] = SubSeq(@, 1, commit[m] - base[m]) \o rest]
            /\ table' = [table EXCEPT ![m] = Added(TableAt(m, commit[m]), rest)]
            /\ UNCHANGED <<base, commit>>
       ELSE LET rest == Tail1(leader, commit[leader])
                numbers == IF Rule("a state comes with its table") THEN StateOf(leader)
                           ELSE table[m]
            IN
            /\ base' = [base EXCEPT ![m] = commit[leader]]
            /\ log' = [log EXCEPT ![m] = rest]
            /\ table' = [table EXCEPT ![m] = Added(numbers, rest)]
            /\ commit' = [commit EXCEPT ![m] = commit[leader]]
    /\ of' = [of EXCEPT ![m] = epoch]
    /\ UNCHANGED <<chosen, epoch, leader>>

\* What is committed at any other member; a copy has no tail.
Copy(m, other) ==
    /\ m # leader /\ commit[other] > commit[m]
    /\ base' = [base EXCEPT ![m] = commit[other]]
    /\ log' = [log EXCEPT ![m] = <<>>]
    /\ table' = [table EXCEPT ![m] = StateOf(other)]
    /\ commit' = [commit EXCEPT ![m] = commit[other]]
    /\ of' = [of EXCEPT ![m] = 0]
    /\ UNCHANGED <<chosen, epoch, leader>>

Drop(m) ==
    /\ base[m] < commit[m]
    /\ base' = [base EXCEPT ![m] = @ + 1]
    /\ log' = [log EXCEPT ![m] = SubSeq(@, 2, Len(@))]
    /\ UNCHANGED <<chosen, epoch, leader, table, commit, of>>

\* The next coordinator keeps what is chosen and any part of its tail.
Lead(m, n) ==
    /\ epoch < MaxEpoch /\ Length(m) >= Len(chosen) /\ base[m] <= Len(chosen)
    /\ of[m] = epoch \/ (commit[m] = Len(chosen) /\ Length(m) = commit[m])
    /\ n \in Len(chosen)..Length(m)
    /\ epoch' = epoch + 1 /\ leader' = m
    /\ chosen' = chosen \o SubSeq(log[m], Len(chosen) - base[m] + 1, n - base[m])
    /\ table' = [table EXCEPT ![m] = TableAt(m, n)]
    /\ log' = [log EXCEPT ![m] = SubSeq(@, 1, n - base[m])]
    /\ commit' = [commit EXCEPT ![m] = n]
    /\ of' = [of EXCEPT ![m] = epoch + 1]
    /\ UNCHANGED base

Next ==
    \/ \E s \in Subject : Publish(s)
    \/ Commit
    \/ \E m \in Member :
        \/ Learn(m) \/ Accept(m) \/ Follow(m) \/ Drop(m)
        \/ \E o \in Member : Copy(m, o)
        \/ \E n \in 0..Length(m) : Lead(m, n)

Spec == Init /\ [][Next]_vars

-------------------------------------------------------------------------------

Of(entries, s) == {k \in DOMAIN entries : entries[k].subject = s}

\* I4: each subject is numbered without a gap, and no number is given twice.
NumbersFollow ==
    \A k \in DOMAIN chosen :
        chosen[k].seq = Cardinality({j \in Of(chosen, chosen[k].subject) : j <= k})

\* A member's table says what its whole log would, dropped entries included.
TableIsOfTheLog ==
    \A m \in Member : LET whole == SubSeq(chosen, 1, base[m]) \o log[m] IN
        \A s \in Subject : table[m][s] = Cardinality(Of(whole, s))

\* I2: what a member knows to be committed is chosen.
CommittedIsChosen ==
    \A m \in Member : commit[m] <= Len(chosen)
        /\ \A k \in (base[m] + 1)..commit[m] : log[m][k - base[m]] = chosen[k]

NeverLedFromAState ==
    ~ (epoch > 1 /\ base[leader] = Len(chosen) /\ Len(chosen) > 1
        /\ \E k \in DOMAIN log[leader] : log[leader][k].epoch = epoch)

Symmetry == Permutations(Member) \cup Permutations(Subject)
===============================================================================
