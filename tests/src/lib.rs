//! Workspace-wide and real-machine tests.
