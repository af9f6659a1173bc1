//! Checks that a file is the intended one: SHA-256 and minisign.

use std::fs::File;
use std::os::unix::fs::FileExt;

use minisign_verify::{PublicKey, Signature, StreamVerifier};

use super::{Context, ImportError, ImportStep};
use crate::digest::Sha256;

const READ_BYTES: usize = 1 << 20;

/// The trusted signers.
#[derive(Debug, Clone, Default)]
pub struct SignaturePolicy {
    /// Minisign public keys: only the base64 line, or a whole `minisign.pub`.
    pub trusted_keys: Vec<String>,
    /// Whether images without a signature are refused.
    pub required: bool,
}

/// A verified signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBy {
    /// Index of the key in [`SignaturePolicy::trusted_keys`].
    pub trusted_key: usize,
    /// The comment covered by the signature.
    pub trusted_comment: String,
}

pub(super) struct VerifiedSource {
    pub(super) sha256: Sha256,
    pub(super) signed_by: Option<SignedBy>,
}

/// Reads the whole file once. Compares its SHA-256 and verifies its signature.
pub(super) fn check(context: &Context<'_>, file: &File) -> Result<VerifiedSource, ImportError> {
    let request = context.request;
    let keys = parse_keys(&request.policy.trusted_keys)?;
    let signature = request.signature.map(parse_signature).transpose()?;
    if signature.is_none() && request.policy.required {
        return Err(ImportError::SignatureMissing);
    }
    let mut verifier = signature
        .as_ref()
        .map(|signature| choose_key(&keys, signature))
        .transpose()?;
    let sha256 = read_through(context, file, verifier.as_mut().map(|(_, verifier)| verifier))?;
    if let Some(expected) = request.expected_sha256
        && expected != sha256
    {
        return Err(ImportError::Sha256 {
            expected,
            found: sha256,
        });
    }
    let signed_by = match (&mut verifier, &signature) {
        (Some((trusted_key, verifier)), Some(signature)) => {
            verifier
                .finalize()
                .map_err(|error| ImportError::SignatureInvalid(error.to_string()))?;
            Some(SignedBy {
                trusted_key: *trusted_key,
                trusted_comment: signature.trusted_comment().to_owned(),
            })
        }
        _ => None,
    };
    Ok(VerifiedSource { sha256, signed_by })
}

fn parse_keys(texts: &[String]) -> Result<Vec<PublicKey>, ImportError> {
    let parse = |(index, text): (usize, &String)| {
        let text = text.trim();
        let key = if text.lines().count() > 1 {
            PublicKey::decode(text)
        } else {
            PublicKey::from_base64(text)
        };
        key.map_err(|error| ImportError::TrustedKey {
            number: index + 1,
            reason: error.to_string(),
        })
    };
    texts.iter().enumerate().map(parse).collect()
}

fn parse_signature(text: &str) -> Result<Signature, ImportError> {
    if text.len() > 16 << 10 {
        return Err(ImportError::SignatureInvalid("it is longer than 16 KiB".to_owned()));
    }
    Signature::decode(text).map_err(|error| ImportError::SignatureInvalid(error.to_string()))
}

/// Returns the trusted key that matches the signature's key id.
fn choose_key<'a>(keys: &'a [PublicKey], signature: &'a Signature) -> Result<(usize, StreamVerifier<'a>), ImportError> {
    for (index, key) in keys.iter().enumerate() {
        match key.verify_stream(signature) {
            Ok(verifier) => return Ok((index, verifier)),
            Err(minisign_verify::Error::UnexpectedKeyId) => {}
            Err(error) => return Err(ImportError::SignatureInvalid(error.to_string())),
        }
    }
    Err(ImportError::SignatureInvalid(
        "its key is not among the site's trusted keys".to_owned(),
    ))
}

fn read_through(
    context: &Context<'_>,
    file: &File,
    mut verifier: Option<&mut StreamVerifier<'_>>,
) -> Result<Sha256, ImportError> {
    let mut sha256 = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; READ_BYTES];
    let mut done = 0u64;
    loop {
        context.check_cancel()?;
        let count = match file.read_at(&mut buffer, done) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => {
                return Err(ImportError::Read {
                    path: context.request.source.to_owned(),
                    source,
                });
            }
        };
        if count == 0 {
            break;
        }
        sha256.update(&buffer[..count]);
        if let Some(verifier) = &mut verifier {
            verifier.update(&buffer[..count]);
        }
        done += count as u64;
        if done % (64 << 20) < count as u64 {
            context.report(ImportStep::Verifying, done, 0);
        }
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(sha256.finish().as_ref());
    Ok(Sha256(digest))
}
