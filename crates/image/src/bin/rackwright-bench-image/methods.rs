//! The methods under test, as shell commands. Each leaves the whole image on the medium of `$TARGET`.

/// One method of writing an image.
pub(crate) struct Method {
    /// Key in the JSON document.
    pub(crate) name: &'static str,
    /// Description of the method.
    pub(crate) note: &'static str,
    /// Run by `bash -o pipefail -ec` with SELF, URL, IMAGE, TARGET, BMAP, TMPFS, SHA256 and QEMU_FORMAT in its environment.
    pub(crate) command: &'static str,
    /// Whether it writes every byte of the disk, or only the data.
    pub(crate) writes_all: bool,
    /// Whether a disk that differs from the image ends the run. False for a method that leaves old data in place by design.
    pub(crate) must_match: bool,
}

/// Baseline of the ratios.
pub(crate) const BASELINE: &str = "curl_zstd_dd";

/// All methods, in the order of a round.
pub(crate) const METHODS: [Method; 6] = [
    Method {
        name: "ours",
        note: "this crate over HTTP; zeros are left to the target, every chunk is verified",
        command: "exec \"$SELF\" write --url \"$URL\" --image \"$IMAGE\" --target \"$TARGET\"",
        writes_all: false,
        must_match: true,
    },
    Method {
        name: "ours_every_byte",
        note: "the same, every zero written too",
        command: "exec \"$SELF\" write --all --url \"$URL\" --image \"$IMAGE\" --target \"$TARGET\"",
        writes_all: true,
        must_match: true,
    },
    Method {
        name: "ours_pwrite",
        note: "the same as the first without io_uring",
        command: "exec \"$SELF\" write --pwrite --url \"$URL\" --image \"$IMAGE\" --target \"$TARGET\"",
        writes_all: false,
        must_match: true,
    },
    Method {
        name: BASELINE,
        note: "curl | zstd -dc | dd oflag=direct; nothing is verified",
        command: "curl -sSf \"$URL/files/disk.raw.zst\" | zstd -dc | \
                  dd of=\"$TARGET\" bs=4M iflag=fullblock oflag=direct conv=notrunc,fsync status=none",
        writes_all: true,
        must_match: true,
    },
    Method {
        name: "qemu_img_convert",
        note: "as ironic-python-agent does it: qcow2 over HTTP to a tmpfs, its SHA-256, convert",
        command: "curl -sSf \"$URL/files/disk.qcow2\" -o \"$TMPFS/disk.qcow2\"; \
                  echo \"$SHA256  $TMPFS/disk.qcow2\" | sha256sum --check --quiet; \
                  qemu-img convert -n -t directsync -S 0 -W -f qcow2 -O \"$QEMU_FORMAT\" \
                  \"$TMPFS/disk.qcow2\" \"$TARGET\"; rm \"$TMPFS/disk.qcow2\"",
        writes_all: true,
        must_match: true,
    },
    Method {
        name: "bmaptool",
        note: "bmaptool copy of the .zst with its block map; verified by SHA-256 of the mapped ranges; \
               leaves what the target held wherever the image has holes",
        command: "bmaptool --quiet copy --bmap \"$BMAP\" \"$URL/files/disk.raw.zst\" \"$TARGET\"",
        writes_all: false,
        must_match: false,
    },
];
