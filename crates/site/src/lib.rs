//! Rackwright site.
