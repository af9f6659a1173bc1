//! Erase certificates that the facts do not support.
