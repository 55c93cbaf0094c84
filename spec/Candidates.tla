------------------------------ MODULE Candidates ------------------------------
(* I5: an epoch has at most one coordinator. Two members may stand for the same *)
(* epoch at the same time, and the same member again after a restart; a seed's  *)
(* vote file holds the epoch together with the candidate it promised it to.     *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Seed, Candidate, MaxEpoch, MaxCrash, Off

Rule(name) == name \notin Off
Epoch == 1..MaxEpoch
Majority == {q \in SUBSET Seed : Cardinality(q) * 2 > Cardinality(Seed)}

\* A candidate is told apart by its incarnation: after a restart it is another one.
VARIABLES
    memory,     \* per seed: the promise it knows of, [epoch, to]
    file,       \* per seed: the promise in its vote file
    votes,      \* promises sent: [seed, epoch, to]
    crashes

vars == <<memory, file, votes, crashes>>
None == [epoch |-> 0, to |-> "nobody"]

Init ==
    /\ memory = [s \in Seed |-> None]
    /\ file = [s \in Seed |-> None]
    /\ votes = {}
    /\ crashes = 0

Allowed(s, e, c) ==
    \/ e > memory[s].epoch
    \/ ~ Rule("one candidate an epoch") /\ e = memory[s].epoch

Decide(s, e, c) ==
    /\ Allowed(s, e, c)
    /\ memory' = [memory EXCEPT ![s] = [epoch |-> e, to |-> c]]
    /\ UNCHANGED <<file, votes, crashes>>

Write(s) ==
    /\ file[s] # memory[s]
    /\ file' = [file EXCEPT ![s] = memory[s]]
    /\ UNCHANGED <<memory, votes, crashes>>

Answer(s) ==
    /\ memory[s] # None
    /\ Rule("the vote file is written first") => file[s] = memory[s]
    /\ votes' = votes \cup {[seed |-> s, epoch |-> memory[s].epoch, to |-> memory[s].to]}
    /\ UNCHANGED <<memory, file, crashes>>

Crash(s) ==
    /\ crashes < MaxCrash
    /\ crashes' = crashes + 1
    /\ memory' = [memory EXCEPT ![s] = file[s]]
    /\ UNCHANGED <<file, votes>>

Next == \E s \in Seed :
    \/ \E e \in Epoch, c \in Candidate : Decide(s, e, c)
    \/ Write(s) \/ Answer(s) \/ Crash(s)

Spec == Init /\ [][Next]_vars

Elected(e, c) == {s \in Seed : [seed |-> s, epoch |-> e, to |-> c] \in votes} \in Majority

\* I5
OneCoordinator ==
    \A e \in Epoch : \A c, d \in Candidate : Elected(e, c) /\ Elected(e, d) => c = d

\* A seed's answers never go back behind its vote file.
FileIsAhead == \A v \in votes : file[v.seed].epoch >= v.epoch

NeverContested ==
    ~ \E e \in Epoch : \E c, d \in Candidate : c # d /\ Elected(e, c)
        /\ \E v \in votes : v.epoch = e /\ v.to = d

Symmetry == Permutations(Seed) \cup Permutations(Candidate)
===============================================================================
