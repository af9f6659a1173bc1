//! A host on the boot network that poses as the agent of a node.
