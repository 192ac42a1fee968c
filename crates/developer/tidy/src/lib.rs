//! Rules about this source tree that can be checked automatically, as tests: the layers, the names
//! and the docs of modules, and that nothing of one developer's machine has slipped in.
//!
//! It reads files and what cargo knows about dependencies. Style that needs taste is for reviewers.

#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod module_cycles;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod vocabulary;
