//! Clients that try to use up memory, connections and disk space.
