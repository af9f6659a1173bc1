//! The digest with which firmware measures an EFI program: Microsoft's "Windows Authenticode Portable Executable
//! Signature Format". The digest omits the signatures, so it does not depend on the signer.

use goblin::pe::PE;

use crate::sha256;

/// The file is not an EFI program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not an EFI program: {0}")]
pub struct NotAProgram(String);

/// Returns the Authenticode digest (SHA-256) of a program.
///
/// # Errors
/// The file is not a PE image, or it is truncated.
pub fn authenticode(file: &[u8]) -> Result<[u8; 32], NotAProgram> {
    let program = PE::parse(file).map_err(|error| NotAProgram(error.to_string()))?;
    let is_whole = program.sections.iter().all(|section| {
        let end = u64::from(section.pointer_to_raw_data) + u64::from(section.size_of_raw_data);
        end <= file.len() as u64
    });
    if !is_whole {
        return Err(NotAProgram("a section ends after the end of the file".into()));
    }
    let parts: Vec<&[u8]> = program.authenticode_ranges().collect();
    Ok(sha256(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_program_is_an_error() {
        assert!(authenticode(b"").is_err());
        assert!(authenticode(b"MZ").is_err());
        assert!(authenticode(&[0x4d; 4096]).is_err());
    }
}
