//! What an agent is told to do after each answer. Fixed texts: nothing foreign is ever in them.

pub(super) const CLAIMED: &str = "The key is yours until lease_until. Read the current state once \
more, then do the work, once. Call update_activity and checkpoint as you go: each call extends the \
lease. Give downstream_key to the target as its Idempotency-Key. End with complete, or with release \
if nothing happened.";

pub(super) const CLAIMED_AFTER_OTHERS: &str = "The key is yours until lease_until, and you are not \
the first: an earlier attempt ended without a result and may have done the work, or a part of it. \
Read the current state and untrusted.checkpoints, and do only what is missing. Each call of \
update_activity or checkpoint extends the lease. Give downstream_key to the target as its \
Idempotency-Key. End with complete, or with release if nothing happened.";

pub(super) const CLAIMED_ALREADY: &str = "You hold this key already: it is the same claim, and its \
lease is extended. Go on where you were. If another task of yours has claimed it, that one does the \
work: stop.";

pub(super) const HELD_OTHERWISE: &str = "You hold this key already, and the claim stands as it was \
made: what you ask for now can't be added to it, and nothing was changed. If nothing was done under it \
yet, release it and claim it again as you need it. Otherwise claim it again without what was refused, \
or tell a person.";

pub(super) const IN_FLIGHT: &str = "Somebody else is doing this. Don't do it. wait returns the \
result when there is one, and tells you if the key becomes free.";

pub(super) const COMPLETED: &str = "This is done, and untrusted.result is its result. Don't do it \
again: report that result and stop.";

pub(super) const COMPLETED_WITHOUT_RESULT: &str = "This is done, but its result could not be kept; \
untrusted.result_omitted says what is known of it. Don't do it again: report that and stop.";

pub(super) const FAILED: &str = "This has failed for good; untrusted.failure says how. Don't try it \
again: report the failure and stop. A person can let it run again with `firstclaim settle`.";

pub(super) const HELD: &str = "Nobody knows whether an earlier attempt did this, and it may not be \
repeated without a decision. Don't do it, and don't try another key for it. Tell a person, who looks \
what happened and then decides with `firstclaim settle`.";

pub(super) const MISMATCH: &str = "The key is bound to other parameters than your fingerprint \
(bound_to is not given). Nothing was claimed. If this is another operation, it needs a key of its \
own; if it is the same one, your parameters are not what it was started with: tell a person.";

pub(super) const ABSENT: &str = "Nobody has claimed this. If the current state shows that it is \
still to be done, it must be claimed before anything is changed.";

pub(super) const RELEASED: &str = "Nobody has the key: its last owner gave it back. If the current \
state shows that this is still to be done, it must be claimed before anything is changed.";

pub(super) const LAPSED: &str = "Whoever had the key is gone: the lease is over, and nobody knows \
what was done. Read the current state and untrusted.checkpoints. If it is still to be done, it must \
be claimed before anything is changed.";

pub(super) const YOURS: &str = "The key is yours until lease_until: you are the one who does this. \
Waiting for yourself is of no use.";

pub(super) const ACTIVITY_RECORDED: &str = "People see it now; it decides nothing. The key is yours \
until lease_until.";

pub(super) const CHECKPOINT_RECORDED: &str = "A later attempt finds it, if this one does not end. \
The key is yours until lease_until.";

pub(super) const COMPLETE_RECORDED: &str = "The result is recorded and answers every duplicate. The \
claim has ended: do nothing more under this key.";

pub(super) const OTHER_RESULT_STANDS: &str = "The operation has a result already, untrusted.result, \
and a result never changes: yours was not recorded. Report the recorded one and stop.";

pub(super) const RELEASE_RECORDED: &str = "The key is given back, and anybody may claim it at once. \
Do nothing more under it.";

pub(super) const NOT_YOURS: &str = "This server holds no claim of this key: it was not claimed \
through it, or has ended. Nothing was changed. Call claim, and act on its answer; get_claim only \
looks.";

pub(super) const SUPERSEDED: &str = "You have lost the key: the lease was over and somebody else \
took it, or the claim was ended. Nothing was changed. Stop the work now. wait returns the result of \
the one who has the key, or tells you that it is free.";

pub(super) const CLAIM_UNKNOWN: &str = "The store did not answer, so nothing is known: not that you \
have the key, and not that somebody else has it. Don't do the work. Call claim again with the same \
key.";

pub(super) const CLAIM_TOO_LATE: &str = "The claim came too late to be used. Nothing was done. Call \
claim again with the same key.";

pub(super) const CLOCK_IS_OFF: &str = "This machine's clock and the store's differ by so much that a \
lease means nothing. Nothing can be claimed here until a person has set the clock. Don't do the \
work.";

pub(super) const LOOK_UNKNOWN: &str = "The store did not answer, so nothing is known of this key: it \
is no sign that it is free. Call again.";

pub(super) const ACTIVITY_UNKNOWN: &str = "The store did not answer, so the activity may not be \
seen, and the lease may not be extended. That decides nothing: call again, and go on while the lease \
runs that you were told of before.";

pub(super) const CHECKPOINT_UNKNOWN: &str = "The store did not answer, so the checkpoint may or may \
not be recorded. Call checkpoint again with the same name and value; don't repeat the step.";

pub(super) const COMPLETE_UNKNOWN: &str = "The store did not answer, so the result may or may not be \
recorded. Don't repeat the work. Call complete again with the same result.";

pub(super) const RELEASE_UNKNOWN: &str = "The store did not answer, so the key may or may not be \
free. Call release again; if that never succeeds the key is free when its lease is over.";

pub(super) const MALFORMED_KEY: &str = "The key can't be used, and nothing was done. A key is \
<scope>#<id>; correct it as problem says.";

pub(super) const OUT_OF_SCOPE: &str = "This server was started for other keys, and nothing was done. \
Is this the key of your task? Then a person must start the server with another --scope. Don't choose \
another key to get around it.";

pub(super) const ARGUMENTS: &str = "The arguments can't be used, and nothing was done. Correct them \
as problem says.";
