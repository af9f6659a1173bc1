//! Platform configuration registers of the SHA-256 bank.

use std::collections::BTreeMap;

use crate::public::ALG_SHA256;
use crate::sha256;
use crate::wire::{Malformed, Reader, Writer};

/// Number of registers in a TPM of a PC; larger numbers are refused or ignored.
pub const COUNT: u8 = 24;
/// The registers that a machine must report: firmware, its settings and boot programs (0 to 7), the measurements of the
/// boot loader and of the kernel's stub (8, 9), and a unified kernel image (11).
pub const QUOTED: Selection = Selection(0b1011_1111_1111);

/// A set of registers: bit n stands for register n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Selection(pub u32);

impl Selection {
    /// The registers in ascending order.
    pub fn indexes(self) -> impl Iterator<Item = u8> {
        (0..COUNT).filter(move |index| self.0 & (1 << index) != 0)
    }

    /// Writes a TPML_PCR_SELECTION with the SHA-256 bank.
    #[must_use]
    pub fn write(self) -> Vec<u8> {
        let [a, b, c, _] = self.0.to_le_bytes();
        let writer = Writer::new().u32(1).u16(ALG_SHA256);
        writer.u8(3).bytes(&[a, b, c]).done()
    }

    /// Reads a TPML_PCR_SELECTION with registers of the SHA-256 bank only. Other banks may appear with an empty
    /// selection.
    ///
    /// # Errors
    /// The structure is malformed or selects registers of another bank.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        const WHAT: &str = "selection of PCRs";
        let count = reader.u32(WHAT)?;
        if count > 16 {
            return Err(Malformed(WHAT));
        }
        let mut selection = Self::default();
        for _ in 0..count {
            let bank = reader.u16(WHAT)?;
            let length = reader.u8(WHAT)?;
            let map = reader.bytes(length.into(), WHAT)?;
            let mut bits = 0;
            for (at, byte) in map.iter().enumerate() {
                if at < 3 {
                    bits |= u32::from(*byte) << (8 * at);
                } else if *byte != 0 {
                    return Err(Malformed(WHAT));
                }
            }
            if bits != 0 && (bank != ALG_SHA256 || selection.0 != 0) {
                return Err(Malformed(WHAT));
            }
            selection.0 |= bits;
        }
        Ok(selection)
    }
}

/// The values of registers, by index.
pub type Values = BTreeMap<u8, [u8; 32]>;

/// The digest that a quote has for these values: over all of them, in the order of the registers.
#[must_use]
pub fn digest(values: &Values) -> [u8; 32] {
    let parts: Vec<&[u8]> = values.values().map(<[u8; 32]>::as_slice).collect();
    sha256(&parts)
}

/// The registers that have a value.
#[must_use]
pub fn selection(values: &Values) -> Selection {
    let bits = values.keys().filter(|index| **index < COUNT);
    Selection(bits.fold(0, |bits, index| bits | 1 << index))
}
