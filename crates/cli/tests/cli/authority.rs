//! A certificate authority for one test.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// A CA with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
    der: Vec<u8>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            issuer: Issuer::new(params, key),
        }
    }

    /// `sha256:HEX` of the certificate.
    pub fn pin(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.der);
        format!("sha256:{}", hex::encode(digest))
    }

    /// Certificate and key of a server of these names.
    pub fn server(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A client certificate that began `age` ago and ends in `left`. Only the public key of the request is used.
    pub fn client(&self, csr_pem: &str, member: &str, age: Duration, left: Duration) -> Option<String> {
        let mut request = CertificateSigningRequestParams::from_pem(csr_pem).ok()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, member);
        params.not_before = (SystemTime::now() - age).into();
        params.not_after = (SystemTime::now() + left).into();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.params = params;
        Some(request.signed_by(&self.issuer).ok()?.pem())
    }
}
