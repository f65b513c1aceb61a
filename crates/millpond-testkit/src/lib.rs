//! Reference model, history, history checker, fuzzing (development only).
//!
//! Owns what judges the product from outside. Must never ship, and must never share the product's logic.

pub mod checker;
pub mod fuzz;
pub mod history;
pub mod judge;
pub mod model;
pub mod trail;
