------------------------------- MODULE Restored -------------------------------
(* Seeds that write their logs down (`JournalFsync = commit`): whoever crashes  *)
(* starts with the log of its disk, and votes at once. So any number of seeds   *)
(* may crash, all of them at the same time too. A seed takes entries into its   *)
(* memory first, and they are written later: until then it acknowledges none.   *)
EXTENDS GroupLog

VARIABLES disk    \* per seed: its log on the disk, and the epoch of that

restoredVars == <<logVars, disk>>

DInit == Init /\ disk = [s \in Seed |-> [accepted |-> 0, log |-> <<>>]]

Memory(s) == [accepted |-> accepted[s], log |-> log[s]]

\* What a seed says once it has taken something: nothing, until that is written down.
Said(s, e, n) ==
    IF Rule("an ack waits for the disk") THEN sent' = sent
    ELSE sent' = sent \cup {AckOf(s, e, n)}

TakeLog(s, e) ==
    /\ status[s] = "normal" /\ phase[e] # "idle"
    /\ promised[s] <= e /\ accepted[s] < e
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, base[e])]
    /\ accepted' = [accepted EXCEPT ![s] = e]
    /\ promised' = [promised EXCEPT ![s] = e]
    /\ Said(s, e, base[e])
    /\ UNCHANGED <<incarnation, status, epochVars, committed, crashes, disk>>

TakeEntries(s, e, n) ==
    /\ accepted[s] = e /\ promised[s] = e
    /\ n > Len(log[s]) /\ n <= Len(clog[e])
    /\ log' = [log EXCEPT ![s] = SubSeq(clog[e], 1, n)]
    /\ Said(s, e, n)
    /\ UNCHANGED <<promised, incarnation, status, accepted, epochVars, committed, crashes, disk>>

\* The ack follows on the write; that the seed crashes between is an ack that comes never.
WriteDown(s) ==
    /\ disk[s] # Memory(s)
    /\ disk' = [disk EXCEPT ![s] = Memory(s)]
    /\ sent' = sent \cup {AckOf(s, accepted[s], Len(log[s]))}
    /\ UNCHANGED <<seedVars, epochVars, committed, crashes>>

\* Without the fault assumption.
CrashToDisk(s) ==
    /\ crashes < MaxCrash
    /\ crashes' = crashes + 1
    /\ incarnation' = [incarnation EXCEPT ![s] = @ + 1]
    /\ log' = [log EXCEPT ![s] = disk[s].log]
    /\ accepted' = [accepted EXCEPT ![s] = disk[s].accepted]
    /\ UNCHANGED <<promised, status, epochVars, sent, committed, disk>>

Written(action) == action /\ UNCHANGED disk

DNext ==
    \/ \E e \in Epoch :
        \/ Written(Elect(e)) \/ Written(Activate(e))
        \/ \E p \in Publication : Written(Publish(e, p))
        \/ \E n \in 1..Len(clog[e]) : Written(Commit(e, n))
        \/ \E s \in Seed :
            \/ Written(Promise(s, e)) \/ TakeLog(s, e)
            \/ \E n \in 1..Len(clog[e]) : TakeEntries(s, e, n)
    \/ \E s \in Seed : WriteDown(s) \/ CrashToDisk(s)

DSpec == DInit /\ [][DNext]_restoredVars

\* A seed that restarted votes in a later epoch with what it had acknowledged before.
NeverRestored ==
    ~ \E s \in Seed : incarnation[s] > 0 /\ accepted[s] = 1 /\ promised[s] = 2
        /\ \E c \in committed : Len(log[s]) >= c.place
===============================================================================
