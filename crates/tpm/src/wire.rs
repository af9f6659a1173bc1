//! Big-endian integers and sized buffers, the parts of TPM structures.

/// Input that is not a TPM structure. Names the first wrong field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {0} is malformed")]
pub struct Malformed(pub &'static str);

/// Reads a structure from its beginning. Every error names the field.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed(field))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N, field)?;
        bytes.try_into().map_err(|_| Malformed(field))
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// No byte is left.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(field)?[0])
    }

    /// Reads a `u16`.
    ///
    /// # Errors
    /// Fewer than two bytes are left.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    /// Reads a `u32`.
    ///
    /// # Errors
    /// Fewer than four bytes are left.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    /// Reads a `u64`.
    ///
    /// # Errors
    /// Fewer than eight bytes are left.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    /// Reads a buffer with a two-byte length before it.
    ///
    /// # Errors
    /// The buffer is longer than the rest of the input.
    pub fn sized(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.u16(field)?;
        self.bytes(length.into(), field)
    }

    /// Reads a `u16` that must equal `value`.
    ///
    /// # Errors
    /// The `u16` has another value, or fewer than two bytes are left.
    pub fn must_be(&mut self, value: u16, field: &'static str) -> Result<(), Malformed> {
        if self.u16(field)? == value {
            Ok(())
        } else {
            Err(Malformed(field))
        }
    }

    /// The unread bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Checks that every byte has been read.
    ///
    /// # Errors
    /// Bytes are left.
    pub fn end(&self, structure: &'static str) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed(structure))
        }
    }
}

/// Writes a structure.
#[derive(Debug, Clone, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Starts with an empty structure.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one byte.
    #[must_use]
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// Appends a `u16`.
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a `u32`.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a `u64`.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends bytes without a length.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a buffer with a two-byte length before it. TPM buffers are short. A longer buffer is cut at 65,535
    /// bytes, and no TPM accepts the result.
    #[must_use]
    pub fn sized(self, bytes: &[u8]) -> Self {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.u16(length).bytes(&bytes[..length.into()])
    }

    /// Returns the structure.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}
