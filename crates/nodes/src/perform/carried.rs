//! Programs that are copied to installed systems.

use std::path::Path;

use rackwright_validate::CarriedProgram;

/// Largest accepted program, in bytes.
const PROGRAM_BYTES: u64 = 64 << 20;

/// Reads a program; `what` names it in errors, such as "the traffic program".
///
/// # Errors
/// The file cannot be read or is too large; the error is a text for people.
pub async fn carried_program(path: &Path, what: &str) -> Result<CarriedProgram, String> {
    let wrong = |why: String| format!("{what} {}: {why}", path.display());
    let size = tokio::fs::metadata(path).await.map_err(|e| wrong(e.to_string()))?.len();
    if size > PROGRAM_BYTES {
        return Err(wrong(format!(
            "the file has {size} bytes; at most {PROGRAM_BYTES} are allowed"
        )));
    }
    let bytes = tokio::fs::read(path).await.map_err(|e| wrong(e.to_string()))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    Ok(CarriedProgram {
        sha256: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes: bytes.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_is_read_with_its_digest_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        tokio::fs::write(&path, b"abc").await.unwrap();
        let program = carried_program(&path, "the probe").await.unwrap();
        assert_eq!(&*program.bytes, b"abc");
        // SHA-256 of "abc" (FIPS 180-4, examples).
        assert!(
            program.sha256.starts_with("ba7816bf8f01cfea414140de5dae2223"),
            "{}",
            program.sha256
        );
        let error = carried_program(&dir.path().join("none"), "the probe")
            .await
            .unwrap_err();
        assert!(error.starts_with("the probe /") && error.contains("/none: "), "{error}");
    }
}
