-- Records of the store itself (decision 0039): few, and asked for often.
CREATE INDEX records_of_store ON takeback_store.records (run, seq)
  WHERE kind IN ('stop', 'lift', 'policy', 'trust', 'anchor', 'rehearse', 'climb', 'redact');
