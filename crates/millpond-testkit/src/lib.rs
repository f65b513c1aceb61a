//! Reference model, history checker, process harness (development only).
//!
//! Owns what judges the product from outside. Must never ship, and must never share the product's logic.

pub mod model;
