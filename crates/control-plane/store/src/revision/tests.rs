//! Tests of revisions.

mod simulation;
