//! A strict reader of QEMU's qcow2, versions 2 and 3 (QEMU `docs/interop/qcow2.txt`), for untrusted files.
//!
//! The reader refuses all references to other files: through a backing file or an external data file an uploaded image
//! could read files of the server. It also refuses encryption, files marked dirty or corrupt, and every unknown
//! incompatible feature. It ignores internal snapshots and reads the active state.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use crate::index::MAX_LOGICAL_SIZE;

/// QEMU's own limit for the first-level table (`QCOW_MAX_L1_SIZE` in `block/qcow2.h`), bytes.
const MAX_L1_BYTES: u64 = 32 << 20;
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const READS_ZERO: u64 = 1;

/// Why a qcow2 file is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Qcow2Error {
    #[error("qcow2: cannot read {length} bytes at {offset}: {source}")]
    Read {
        offset: u64,
        length: usize,
        source: io::Error,
    },
    #[error("qcow2: the magic number is missing")]
    Magic,
    #[error("qcow2: version {0} is not supported; versions 2 and 3 are")]
    Version(u32),
    #[error("qcow2: the image refers to a backing file: flatten it with `qemu-img convert` first")]
    BackingFile,
    #[error("qcow2: the image keeps its data in another file: flatten it with `qemu-img convert` first")]
    ExternalData,
    #[error("qcow2: the image is encrypted: decrypt it with `qemu-img convert` first")]
    Encrypted,
    #[error("qcow2: the image is marked {0}: repair it with `qemu-img check -r all` first")]
    Unclean(&'static str),
    #[error("qcow2: incompatible features {0:#x} are not supported: flatten it with `qemu-img convert` first")]
    Features(u64),
    #[error("qcow2: {field} is {value}, which is not allowed")]
    Field { field: &'static str, value: u64 },
    #[error("qcow2: the file ends before cluster {cluster}'s data at {offset}: the file is truncated")]
    Cut { cluster: u64, offset: u64 },
    #[error("qcow2: cluster {cluster} does not unpack: {reason}")]
    Compressed { cluster: u64, reason: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    Deflate,
    Zstd,
}

#[derive(Debug)]
struct Header {
    version: u32,
    cluster_bits: u32,
    size: u64,
    l1_entries: u32,
    l1_offset: u64,
    compression: Compression,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(field)
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(field)
}

impl Header {
    /// Parses the first 112 bytes of the file. `bytes` is padded with zeros if the file is shorter.
    fn parse(bytes: &[u8; 112]) -> Result<Self, Qcow2Error> {
        if bytes[..4] != *b"QFI\xfb" {
            return Err(Qcow2Error::Magic);
        }
        let version = be32(bytes, 4);
        let header_length = match version {
            2 => 72,
            3 => u64::from(be32(bytes, 100)),
            other => return Err(Qcow2Error::Version(other)),
        };
        if be64(bytes, 8) != 0 || be32(bytes, 16) != 0 {
            return Err(Qcow2Error::BackingFile);
        }
        let field = |field, value, fits: bool| {
            if fits {
                Ok(value)
            } else {
                Err(Qcow2Error::Field { field, value })
            }
        };
        let cluster_bits = field(
            "cluster_bits",
            be32(bytes, 20).into(),
            (9..=21).contains(&be32(bytes, 20)),
        )? as u32;
        if be32(bytes, 32) != 0 {
            return Err(Qcow2Error::Encrypted);
        }
        let size = be64(bytes, 24);
        field("size", size, size <= MAX_LOGICAL_SIZE)?;
        let compression = if version == 3 {
            field(
                "header_length",
                header_length,
                header_length >= 104 && header_length.is_multiple_of(8),
            )?;
            features(bytes, header_length)?
        } else {
            Compression::Deflate
        };
        let l1_entries = be32(bytes, 36);
        let covered_by_entry = 1u64 << (cluster_bits + cluster_bits - 3);
        let needed = size.div_ceil(covered_by_entry);
        let enough = u64::from(l1_entries) >= needed && needed * 8 <= MAX_L1_BYTES;
        field("l1_size", l1_entries.into(), enough)?;
        let l1_offset = be64(bytes, 40);
        field(
            "l1_table_offset",
            l1_offset,
            l1_offset.is_multiple_of(1 << cluster_bits),
        )?;
        // Entries beyond the end of the disk are not used.
        Ok(Self {
            version,
            cluster_bits,
            size,
            l1_entries: needed as u32,
            l1_offset,
            compression,
        })
    }
}

fn features(bytes: &[u8; 112], header_length: u64) -> Result<Compression, Qcow2Error> {
    const DIRTY: u64 = 1;
    const CORRUPT: u64 = 1 << 1;
    const EXTERNAL_DATA: u64 = 1 << 2;
    const COMPRESSION_TYPE: u64 = 1 << 3;
    let bits = be64(bytes, 72);
    if bits & EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::ExternalData);
    }
    if bits & CORRUPT != 0 {
        return Err(Qcow2Error::Unclean("corrupt"));
    }
    if bits & DIRTY != 0 {
        return Err(Qcow2Error::Unclean("dirty"));
    }
    if bits & !COMPRESSION_TYPE != 0 {
        return Err(Qcow2Error::Features(bits));
    }
    let kind = if header_length > 104 { bytes[104] } else { 0 };
    match (kind, bits & COMPRESSION_TYPE != 0) {
        (0, false) => Ok(Compression::Deflate),
        (1, true) => Ok(Compression::Zstd),
        _ => Err(Qcow2Error::Field {
            field: "compression_type",
            value: kind.into(),
        }),
    }
}

/// Location of a cluster's bytes.
enum ClusterLocation {
    Zero,
    Plain { offset: u64 },
    Packed { offset: u64, length: usize },
}

/// Reads the disk in a qcow2 file from start to end.
pub(crate) struct Qcow2 {
    file: File,
    file_length: u64,
    header: Header,
    l1: Vec<u64>,
    /// The most recently used second-level table, with its offset in the file.
    l2: Option<(u64, Vec<u8>)>,
    /// The most recently used packed cluster, unpacked.
    unpacked: Option<(u64, Vec<u8>)>,
    position: u64,
}

impl Qcow2 {
    pub(crate) fn open(file: File) -> Result<Self, Qcow2Error> {
        let reading = |source| Qcow2Error::Read {
            offset: 0,
            length: 112,
            source,
        };
        let file_length = file.metadata().map_err(reading)?.len();
        let mut start = [0; 112];
        read_or_zero(&file, 0, &mut start).map_err(reading)?;
        let header = Header::parse(&start)?;
        let mut table = vec![0; header.l1_entries as usize * 8];
        read_exact(&file, header.l1_offset, &mut table)?;
        let l1 = table
            .as_chunks::<8>()
            .0
            .iter()
            .map(|entry| u64::from_be_bytes(*entry))
            .collect();
        Ok(Self {
            file,
            file_length,
            header,
            l1,
            l2: None,
            unpacked: None,
            position: 0,
        })
    }

    fn cluster_size(&self) -> u64 {
        1 << self.header.cluster_bits
    }

    fn aligned(&self, field: &'static str, value: u64) -> Result<u64, Qcow2Error> {
        if value.is_multiple_of(self.cluster_size()) {
            Ok(value)
        } else {
            Err(Qcow2Error::Field { field, value })
        }
    }

    fn locate(&mut self, cluster: u64) -> Result<ClusterLocation, Qcow2Error> {
        let l2_bits = self.header.cluster_bits - 3;
        let l2_offset = self.l1[(cluster >> l2_bits) as usize] & OFFSET_MASK;
        if l2_offset == 0 {
            return Ok(ClusterLocation::Zero);
        }
        self.aligned("the offset of an L2 table", l2_offset)?;
        if self.l2.as_ref().is_none_or(|(offset, _)| *offset != l2_offset) {
            let mut table = vec![0; self.cluster_size() as usize];
            read_exact(&self.file, l2_offset, &mut table)?;
            self.l2 = Some((l2_offset, table));
        }
        let index = (cluster & ((1 << l2_bits) - 1)) as usize * 8;
        let entry = self.l2.as_ref().map_or(0, |(_, table)| be64(table, index));
        if entry & COMPRESSED != 0 {
            return Ok(self.packed_location(entry));
        }
        let offset = entry & OFFSET_MASK;
        if offset == 0 || (self.header.version >= 3 && entry & READS_ZERO != 0) {
            return Ok(ClusterLocation::Zero);
        }
        self.aligned("the offset of a cluster", offset)?;
        if offset >= self.file_length {
            return Err(Qcow2Error::Cut { cluster, offset });
        }
        Ok(ClusterLocation::Plain { offset })
    }

    fn packed_location(&self, entry: u64) -> ClusterLocation {
        let offset_bits = 62 - (self.header.cluster_bits - 8);
        let offset = entry & ((1 << offset_bits) - 1);
        let more_sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
        // At most 2^13 sectors, which is two clusters of the largest size.
        let length = (more_sectors + 1) * 512 - (offset & 511);
        ClusterLocation::Packed {
            offset,
            length: length as usize,
        }
    }

    fn unpack(&mut self, cluster: u64, offset: u64, length: usize) -> Result<&[u8], Qcow2Error> {
        if self.unpacked.as_ref().is_none_or(|(number, _)| *number != cluster) {
            if offset >= self.file_length {
                return Err(Qcow2Error::Cut { cluster, offset });
            }
            let mut packed = vec![0; length];
            // The last sector of the file may be incomplete.
            let reading = |source| Qcow2Error::Read { offset, length, source };
            read_or_zero(&self.file, offset, &mut packed).map_err(reading)?;
            let mut data = self.unpacked.take().map_or_else(Vec::new, |(_, data)| data);
            data.resize(1 << self.header.cluster_bits, 0);
            let unpacked = match self.header.compression {
                Compression::Deflate => inflate(&packed, &mut data),
                Compression::Zstd => decompress_zstd(&packed, &mut data),
            };
            unpacked.map_err(|reason| Qcow2Error::Compressed { cluster, reason })?;
            self.unpacked = Some((cluster, data));
        }
        Ok(self.unpacked.as_ref().map_or(&[], |(_, data)| data))
    }

    fn read_some(&mut self, out: &mut [u8]) -> Result<usize, Qcow2Error> {
        let cluster = self.position >> self.header.cluster_bits;
        let within = self.position & (self.cluster_size() - 1);
        let left = (self.cluster_size() - within).min(self.header.size - self.position);
        let count = left.min(out.len() as u64) as usize;
        let out = &mut out[..count];
        if count == 0 {
            return Ok(0);
        }
        match self.locate(cluster)? {
            ClusterLocation::Zero => out.fill(0),
            ClusterLocation::Plain { offset } => {
                // A file may end inside its last cluster; the missing bytes read as zeros.
                let offset = offset + within;
                let reading = |source| Qcow2Error::Read {
                    offset,
                    length: count,
                    source,
                };
                read_or_zero(&self.file, offset, out).map_err(reading)?;
            }
            ClusterLocation::Packed { offset, length } => {
                let within = within as usize;
                out.copy_from_slice(&self.unpack(cluster, offset, length)?[within..within + count]);
            }
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Read for Qcow2 {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_some(out)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn inflate(packed: &[u8], out: &mut [u8]) -> Result<(), String> {
    let mut inflater = flate2::Decompress::new(false);
    let status = inflater.decompress(packed, out, flate2::FlushDecompress::Finish);
    status.map_err(|error| error.to_string())?;
    complete(inflater.total_out(), out.len())
}

fn decompress_zstd(packed: &[u8], out: &mut [u8]) -> Result<(), String> {
    // Padding follows the frame, so the frame is read as a stream and only to its end.
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)
        .map_err(|e| e.to_string())?
        .single_frame();
    // A cluster has at most 2 MiB; QEMU never writes a frame with a window larger than 16 MiB.
    decoder.window_log_max(24).map_err(|error| error.to_string())?;
    let mut filled = 0;
    while filled < out.len() {
        match decoder.read(&mut out[filled..]).map_err(|error| error.to_string())? {
            0 => break,
            count => filled += count,
        }
    }
    complete(filled as u64, out.len())
}

fn complete(found: u64, expected: usize) -> Result<(), String> {
    if found == expected as u64 {
        Ok(())
    } else {
        Err(format!("{found} bytes, expected {expected}"))
    }
}

fn read_exact(file: &File, offset: u64, out: &mut [u8]) -> Result<(), Qcow2Error> {
    let length = out.len();
    file.read_exact_at(out, offset)
        .map_err(|source| Qcow2Error::Read { offset, length, source })
}

/// Fills `out` from the file, with zeros beyond the end of the file.
fn read_or_zero(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read_at(&mut out[filled..], offset + filled as u64) {
            Ok(0) => {
                out[filled..].fill(0);
                return Ok(());
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    /// A version 3 file of 1 MiB: header, L1 in cluster 1, L2 in cluster 2, one cluster of data in cluster 3.
    fn sample() -> Vec<u8> {
        const CLUSTER: usize = 65536;
        let mut bytes = vec![0u8; 4 * CLUSTER];
        bytes[..4].copy_from_slice(b"QFI\xfb");
        let fields32 = [(4, 3u32), (20, 16), (36, 1), (96, 4), (100, 104)];
        for (at, value) in fields32 {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        let fields64 = [
            (24, 1u64 << 20),
            (40, CLUSTER as u64),
            (CLUSTER, (2 * CLUSTER as u64) | 1 << 63),
            (2 * CLUSTER + 8, (3 * CLUSTER as u64) | 1 << 63),
        ];
        for (at, value) in fields64 {
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        bytes[3 * CLUSTER..].fill(0xab);
        bytes
    }

    fn open(bytes: &[u8]) -> Result<Qcow2, Qcow2Error> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Qcow2::open(file)
    }

    fn read_all(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut disk = Vec::new();
        let reader = open(bytes).map_err(io::Error::other)?;
        reader.take(8 << 20).read_to_end(&mut disk)?;
        Ok(disk)
    }

    #[test]
    fn reads_allocated_data_and_zeros_elsewhere() {
        let disk = read_all(&sample()).unwrap();
        assert_eq!(disk.len(), 1 << 20);
        assert!(disk[65536..131072].iter().all(|b| *b == 0xab));
        assert!(crate::digest::is_zero(&disk[..65536]) && crate::digest::is_zero(&disk[131072..]));
    }

    #[test]
    fn refuses_tables_outside_the_file_and_unclean_images() {
        let with = |at: usize, value: u8| {
            let mut bytes = sample();
            bytes[at] = value;
            open(&bytes).err().unwrap()
        };
        assert!(matches!(with(15, 200), Qcow2Error::BackingFile));
        assert!(matches!(with(19, 4), Qcow2Error::BackingFile));
        assert!(matches!(with(35, 1), Qcow2Error::Encrypted));
        assert!(matches!(with(79, 4), Qcow2Error::ExternalData));
        assert!(matches!(with(79, 2), Qcow2Error::Unclean("corrupt")));
        assert!(matches!(with(79, 1), Qcow2Error::Unclean("dirty")));
        assert!(matches!(with(79, 16), Qcow2Error::Features(16)));
        assert!(matches!(
            with(79, 8),
            Qcow2Error::Field {
                field: "compression_type",
                ..
            }
        ));
        assert!(matches!(with(7, 4), Qcow2Error::Version(4)));
        assert!(matches!(
            with(23, 22),
            Qcow2Error::Field {
                field: "cluster_bits",
                ..
            }
        ));
        assert!(matches!(with(24, 0x7f), Qcow2Error::Field { field: "size", .. }));
        assert!(matches!(with(28, 0x7f), Qcow2Error::Field { field: "l1_size", .. }));
        assert!(matches!(with(39, 0), Qcow2Error::Field { field: "l1_size", .. }));
    }

    #[test]
    fn a_cut_file_is_noticed() {
        let bytes = sample();
        let error = read_all(&bytes[..3 * 65536]).unwrap_err();
        assert!(error.to_string().contains("the file is truncated"), "{error}");
        assert!(open(&bytes[..65536]).is_err());
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..120, value: u8, l1: u64, l2: u64) {
            let mut bytes = sample();
            bytes[at] = value;
            let _ = read_all(&bytes);
            let mut bytes = sample();
            bytes[65536..65544].copy_from_slice(&l1.to_be_bytes());
            let _ = read_all(&bytes);
            let mut bytes = sample();
            bytes[131072..131080].copy_from_slice(&l2.to_be_bytes());
            let _ = read_all(&bytes);
        }
    }
}
