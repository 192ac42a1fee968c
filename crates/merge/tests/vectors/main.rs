//! Facts about merging, as tables: upstream's own test cases in our form.

mod form;
mod managers;
mod patch;
mod series;
mod strategic;
mod typed;
