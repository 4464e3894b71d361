//! Known cases with one right answer.
