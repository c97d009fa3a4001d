-- The words of format 2: what was `keep` is `accept`, and an effect can be pinned. Records are not rewritten: the functions
-- in ../append.sql take `keep` as well, because a store of format 1 can be copied into this one.

ALTER TABLE takeback_store.effects RENAME kept_by TO accepted_by;
ALTER TABLE takeback_store.effects ADD pinned smallint NOT NULL DEFAULT 0;
CREATE INDEX pinned_effects ON takeback_store.effects (seq) WHERE pinned = 1;

ALTER TABLE takeback_store.runs DROP CONSTRAINT runs_state_check;
ALTER TABLE takeback_store.runs DROP CONSTRAINT runs_on_death_check;
ALTER TABLE takeback_store.runs DISABLE TRIGGER ended_runs_stay_ended;
UPDATE takeback_store.runs SET state = 'accepted' WHERE state = 'kept';
UPDATE takeback_store.runs SET on_death = 'accept' WHERE on_death = 'keep';
ALTER TABLE takeback_store.runs ENABLE TRIGGER ended_runs_stay_ended;
ALTER TABLE takeback_store.runs ADD CONSTRAINT runs_state_check CHECK (state IN ('open', 'suspended', 'accepted', 'undone', 'partly undone'));
ALTER TABLE takeback_store.runs ADD CONSTRAINT runs_on_death_check CHECK (on_death IN ('undo', 'accept', 'leave', 'finish', 'resume'));
UPDATE takeback_store.tally SET name = 'accepted' WHERE name = 'kept';
