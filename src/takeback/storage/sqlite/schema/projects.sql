-- runs.project: the directory that the run began in, as a resource; '' where that is no project.
ALTER TABLE runs ADD COLUMN project TEXT NOT NULL DEFAULT '';

-- projects: the directories that effects belong to. What is known of one only becomes true.
CREATE TABLE projects (
  number INTEGER PRIMARY KEY,
  root   TEXT NOT NULL UNIQUE,          -- as a resource
  marked INTEGER NOT NULL DEFAULT 0,    -- it held a marker when something was recorded
  began  INTEGER NOT NULL DEFAULT 0,    -- a run began there
  made   INTEGER NOT NULL DEFAULT 0     -- a recorded effect made its marker
) STRICT;

-- scopes: which effects belong to which project: the one its run began in, and those it touched.
CREATE TABLE scopes (
  project INTEGER NOT NULL,
  effect  INTEGER NOT NULL,             -- seq of the effect
  told    INTEGER NOT NULL,             -- as in `effects`
  PRIMARY KEY (project, effect)
) STRICT, WITHOUT ROWID;
-- late_scopes: those that took hold after others that were begun later.
CREATE INDEX late_scopes ON scopes (project, told) WHERE told <> effect;
CREATE TRIGGER effects_belong AFTER INSERT ON effects BEGIN
  INSERT OR IGNORE INTO scopes SELECT p.number, new.seq, new.told FROM runs r JOIN projects p ON p.root = r.project
    WHERE r.number = new.run;
END;
CREATE TRIGGER effects_belong_late AFTER UPDATE OF told ON effects WHEN new.told <> old.told BEGIN
  UPDATE scopes SET told = new.told WHERE effect = new.seq
    AND project = (SELECT p.number FROM runs r JOIN projects p ON p.root = r.project WHERE r.number = new.run);
END;
CREATE INDEX runs_of_project ON runs (project, number) WHERE project <> '';
