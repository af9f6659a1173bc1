//! The kinds of operations: a caller requests an operation and follows it until it ends.

use crate::names::names;

names! {
    #[derive(Default)]
    OperationKind {
        /// A node is enrolled and inspected.
        #[default]
        Enroll = "enroll",
        /// An available node gets an image and a claim.
        Deploy = "deploy",
        /// A claimed node gets another image.
        Reimage = "reimage",
        /// A node is erased and becomes available.
        Release = "release",
        /// A failed or quarantined node is erased and becomes available.
        Readmit = "readmit",
        /// A node leaves maintenance.
        Resume = "resume",
        /// A failed node does the failed work again.
        Retry = "retry",
        /// The firmware settings of a node are brought to the wanted values.
        Settings = "settings",
        /// A node is switched on, off, or off and on.
        Power = "power",
        /// The firmware of a node is updated.
        Firmware = "firmware",
        /// The BMC of a node gets a new password.
        BmcPassword = "bmc-password",
        /// Networks are searched for BMCs.
        Discover = "discover",
        /// An uploaded image is taken in.
        ImportImage = "import-image",
        /// A cluster is made of free nodes.
        CreateCluster = "create-cluster",
        /// A cluster ends, and its nodes are released.
        ReleaseCluster = "release-cluster",
        /// A cluster gets more or fewer nodes.
        ResizeCluster = "resize-cluster",
        /// The nodes of a cluster get another image, some at a time.
        ReimageCluster = "reimage-cluster",
        /// The nodes of a cluster get their former image.
        RollBackCluster = "roll-back-cluster",
        /// A node of a cluster is replaced by another.
        ReplaceNode = "replace-node",
        /// A failed cluster does the failed work again.
        RetryCluster = "retry-cluster",
    }
}
