//! `.rpd` files in and out: what comes out is compared with what SQL says of what went in.
#![allow(clippy::unwrap_used)]

mod hostile;
mod made;
mod real;
mod support;
mod written;
