//! A control plane that starts on old or copied data.
