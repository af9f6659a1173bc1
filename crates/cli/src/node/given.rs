//! The values that arguments refer to: SSH keys, and texts in files.

use std::io::Read as _;
use std::path::Path;

use crate::error::CliError;

/// Largest user data or key file: about cloud-init's own limit for NoCloud.
const MAX_TEXT_BYTES: u64 = 1 << 20;

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

/// A text of at most 1 MiB: a file, or `-` for standard input.
pub fn read_text(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .take(MAX_TEXT_BYTES + 1)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text))
    };
    read.map_err(|e| CliError::given("read", path, e))?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(CliError::usage(format!("{} is larger than 1 MiB", path.display()), ""));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

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
