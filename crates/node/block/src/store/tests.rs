//! Tests of the store as a whole, over disks in memory that forget.

mod basic;
mod crash;
mod damage;
mod frozen;
mod harm;
mod killed;
mod live;
mod model;
mod nonsense;
mod upgrade;
mod world;
