//! A claim changes hands only by release and erase.
