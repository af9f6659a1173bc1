//! The values that arguments refer to: labels, passwords, SSH keys, texts in files, the files of a directory.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::error::CliError;

/// Largest user data or key file: about cloud-init's own limit for NoCloud.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Longest password, in bytes. Redfish BMCs accept 20 to 128 characters.
const MAX_PASSWORD_BYTES: u64 = 4096;

/// Whether the text is a public key, in the form of an authorized_keys file (sshd(8)).
pub fn is_ssh_key(text: &str) -> bool {
    let known = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"];
    known.iter().any(|kind| text.starts_with(kind)) && text.split_whitespace().count() >= 2
}

/// The keys that arguments refer to.
pub fn ssh_keys(arguments: &[String]) -> Result<Vec<String>, CliError> {
    let mut keys = Vec::new();
    for argument in arguments {
        keys.extend(ssh_keys_of(argument)?);
    }
    Ok(keys)
}

/// The keys of one argument: the argument itself, or the lines of the file it names.
fn ssh_keys_of(argument: &str) -> Result<Vec<String>, CliError> {
    if is_ssh_key(argument) {
        return Ok(vec![argument.trim().to_owned()]);
    }
    let text = read_text(Path::new(argument))?;
    if text.contains("PRIVATE KEY") {
        return Err(CliError::usage(
            format!("{argument} is a private key"),
            format!("give the public key, most likely {argument}.pub"),
        ));
    }
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<String> = lines.map(str::to_owned).collect();
    match keys.iter().find(|key| !is_ssh_key(key)) {
        Some(_) => Err(CliError::usage(
            format!("{argument} contains a line that is not an SSH public key"),
            "a public key begins with its kind, such as ssh-ed25519",
        )),
        None if keys.is_empty() => Err(CliError::usage(format!("{argument} contains no SSH public key"), "")),
        None => Ok(keys),
    }
}

/// The first `limit` bytes of a text: of a file, or of standard input for `-`. `verb` begins the error, as in "read the
/// token from".
pub fn read_beginning(verb: &str, path: &Path, limit: u64) -> Result<String, CliError> {
    let bytes = read_bytes(verb, path, limit)?;
    let is_whole = (bytes.len() as u64) < limit;
    String::from_utf8(bytes).or_else(|error| {
        let (bytes, fault) = (error.as_bytes(), error.utf8_error());
        if fault.error_len().is_none() && !is_whole {
            // The limit cuts a character. The substitute is no shorter than the cut part.
            return Ok(String::from_utf8_lossy(bytes).into_owned());
        }
        let before = String::from_utf8_lossy(&bytes[..fault.valid_up_to()]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        let message = format!("{}:{line}:{column}: this is not UTF-8 text", path.display());
        Err(CliError::usage(message, "save the file as UTF-8"))
    })
}

/// The first `limit` bytes of a file, or of standard input for `-`. `verb` begins the error.
pub fn read_bytes(verb: &str, path: &Path, limit: u64) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|e| CliError::given(verb, path, e))?;
    Ok(bytes)
}

/// A text of at most 1 MiB: a file, or `-` for standard input.
pub fn read_text(path: &Path) -> Result<String, CliError> {
    let text = read_beginning("read", path, MAX_TEXT_BYTES + 1)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(CliError::usage(format!("{} is larger than 1 MiB", path.display()), ""));
    }
    Ok(text)
}

/// Reads `k=v`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not a label: write a label such as rack=r12")),
    }
}

/// Reads a password from a file or from standard input, without line ends at its end.
pub fn read_password(source: Option<&Path>) -> Result<SecretString, CliError> {
    let mut text = String::new();
    let outcome = match source {
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(MAX_PASSWORD_BYTES).read_to_string(&mut text))
        }
        None => std::io::stdin()
            .lock()
            .take(MAX_PASSWORD_BYTES)
            .read_to_string(&mut text),
    };
    outcome.map_err(|e| match source {
        Some(path) => CliError::given("read the password from", path, e),
        None => CliError::Given {
            doing: "read the password from standard input".to_owned(),
            source: e,
        },
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(CliError::usage(
            "the password is empty",
            "the file or standard input must contain the password on one line",
        ));
    }
    Ok(SecretString::from(password.to_owned()))
}

/// The YAML files of a directory, in order of their names; a file is returned unchanged.
pub fn yaml_files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    if path.as_os_str() == "-" || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| CliError::given("read", path, e))? {
        let file = entry.map_err(|e| CliError::given("read", path, e))?.path();
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if matches!(extension, "yaml" | "yml") && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(CliError::usage(
            format!("{} contains no *.yaml or *.yml file", path.display()),
            "",
        ));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_utf_8_is_refused_at_its_place() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("f");
        let read = |bytes: &[u8], limit| {
            std::fs::write(&file, bytes).unwrap();
            read_beginning("read", &file, limit).map_err(|error| error.to_string())
        };
        let refused = |place: &str| Err(format!("{}:{place}: this is not UTF-8 text", file.display()));
        assert_eq!(read("a\n\u{e9}".as_bytes(), 9), Ok("a\n\u{e9}".to_owned()));
        assert_eq!(read(b"a\n\xc3\xa9\xe9 b", 99), refused("2:2"));
        assert_eq!(read(b"\xff\xfea", 99), refused("1:1"));
        assert_eq!(read(b"a\xc3", 99), refused("1:2"), "the file ends within a character");
        assert!(
            read("a\u{e9}".as_bytes(), 2).unwrap().len() >= 2,
            "the limit cuts a character"
        );
    }

    #[test]
    fn keys_are_taken_as_text_and_from_files() {
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ ann@example";
        assert_eq!(ssh_keys_of(key).unwrap(), [key]);
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("keys");
        let name = file.to_str().unwrap();
        std::fs::write(&file, format!("# mine\n{key}\n\nsk-ssh-ed25519@openssh.com AAAA\n")).unwrap();
        assert_eq!(ssh_keys_of(name).unwrap().len(), 2);
        std::fs::write(&file, "-----BEGIN OPENSSH PRIVATE KEY-----").unwrap();
        assert!(ssh_keys_of(name).unwrap_err().to_string().contains("is a private key"));
        std::fs::write(&file, "hello").unwrap();
        assert!(
            ssh_keys_of(name)
                .unwrap_err()
                .to_string()
                .contains("not an SSH public key")
        );
        std::fs::write(&file, "").unwrap();
        assert!(ssh_keys_of(name).is_err());
        assert!(
            ssh_keys_of("/nowhere/at/all")
                .unwrap_err()
                .to_string()
                .contains("/nowhere/at/all")
        );
    }
}
