//! Requests one by one.
