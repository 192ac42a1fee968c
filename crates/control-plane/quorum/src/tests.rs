//! Tests over several modules.

mod simulation;
