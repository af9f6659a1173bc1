//! Big-endian integers and sized buffers, as TPM structures have them.

/// Input that is no structure of a TPM, with the field where that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {0} is malformed")]
pub struct Malformed(pub &'static str);

/// Reads a structure from its beginning. Each error names the field.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed(field))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N, field)?;
        bytes.try_into().map_err(|_| Malformed(field))
    }

    /// One byte.
    ///
    /// # Errors
    /// There is none.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(field)?[0])
    }

    /// Two bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    /// A buffer with its length in two bytes before it.
    ///
    /// # Errors
    /// It is longer than what is there.
    pub fn sized(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.u16(field)?;
        self.bytes(length.into(), field)
    }

    /// A `u16` that may have one value only.
    ///
    /// # Errors
    /// It has another one.
    pub fn must_be(&mut self, value: u16, field: &'static str) -> Result<(), Malformed> {
        if self.u16(field)? == value {
            Ok(())
        } else {
            Err(Malformed(field))
        }
    }

    /// What was not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// Something is.
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
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One byte.
    #[must_use]
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// Two bytes.
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Four bytes.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Eight bytes.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Bytes without a length.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A buffer with its length in two bytes before it. Buffers of a TPM are short: what does not fit is cut off, and no TPM
    /// takes the result.
    #[must_use]
    pub fn sized(self, bytes: &[u8]) -> Self {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.u16(length).bytes(&bytes[..length.into()])
    }

    /// The structure.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}
