//! Rackwright console.
