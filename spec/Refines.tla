------------------------------- MODULE Refines --------------------------------
(* The log of GroupLog is the one that Delivery starts from: each of its steps  *)
(* is a step of Delivery, or changes nothing there. Delivery has no seeds and   *)
(* no messages; what it says of coordinators follows from these:                *)
(*                                                                              *)
(*   chosen    what is committed by any coordinator                             *)
(*   current   the newest epoch that was established on a majority              *)
(*   clog      the logs of coordinators that are, or were, active               *)
(*   commit    what they know to be committed                                   *)
EXTENDS GroupLog

Active == {e \in Epoch : phase[e] = "active"}
Newest == IF Active = {} THEN 1 ELSE CHOOSE e \in Active : \A f \in Active : f <= e

Chosen == [k \in 1..Cardinality({c.place : c \in committed}) |->
            (CHOOSE c \in committed : c.place = k).entry]

Below == INSTANCE Delivery WITH
    Learner <- {}, MaxJoin <- 0, MaxAsk <- 0,
    chosen <- Chosen, current <- Newest,
    clog <- [e \in Epoch |-> IF phase[e] = "active" THEN clog[e] ELSE <<>>],
    commit <- commit,
    view <- <<>>, target <- <<>>, owed <- <<>>, since <- <<>>, ready <- <<>>, seen <- <<>>, told <- {},
    asked <- [e \in Epoch |-> [at |-> 0, acked |-> FALSE]], denied <- FALSE, joins <- 0

RefinesDelivery == Below!Spec
===============================================================================
