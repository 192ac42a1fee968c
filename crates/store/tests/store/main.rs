//! What the store promises, checked from outside.

mod contract;
mod sqlite;
mod world;
