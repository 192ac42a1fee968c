//! Several nodes: a management node here, and a worker in a network namespace of its own.

mod failover;
mod join;
mod lab;
mod migrate;
