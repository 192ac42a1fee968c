//! Damage.
