//! Logins at SSH servers that offer other methods than `password`.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rackwright_serial::{DialError, SshTarget, handshake};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::server::{Auth, Config, Handler, Response, run_stream};
use russh::{MethodKind, MethodSet};
use tokio::net::TcpListener;

/// A BMC that refuses every password.
#[derive(Debug, Clone, Default)]
struct Bmc {
    /// The methods that it offers after a refused password.
    methods: Arc<Mutex<Vec<MethodKind>>>,
    passwords: Arc<AtomicUsize>,
    responses: Arc<AtomicUsize>,
}

impl Bmc {
    fn rejection(&self) -> Auth {
        let methods = self.methods.lock().expect("no thread panicked");
        Auth::Reject {
            proceed_with_methods: Some(MethodSet::from(methods.as_slice())),
            partial_success: false,
        }
    }
}

impl Handler for Bmc {
    type Error = russh::Error;

    async fn auth_password(&mut self, _: &str, _: &str) -> Result<Auth, russh::Error> {
        self.passwords.fetch_add(1, Ordering::Relaxed);
        Ok(self.rejection())
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _: &str,
        _: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, russh::Error> {
        if response.is_some() {
            self.responses.fetch_add(1, Ordering::Relaxed);
            return Ok(self.rejection());
        }
        Ok(Auth::Partial {
            name: Cow::Borrowed(""),
            instructions: Cow::Borrowed(""),
            prompts: Cow::Borrowed(&[(Cow::Borrowed("Password: "), false)]),
        })
    }
}

/// The numbers of passwords and of answers to prompts in one login at a BMC with these methods.
async fn login(methods: &[MethodKind]) -> (usize, usize) {
    let bmc = Bmc::default();
    *bmc.methods.lock().expect("no thread panicked") = methods.to_vec();
    let key = KeypairData::Ed25519(Ed25519Keypair::from_seed(&[7; 32]));
    let config = Arc::new(Config {
        methods: MethodSet::from(&[MethodKind::Password, MethodKind::KeyboardInteractive][..]),
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![PrivateKey::new(key, "").expect("a key")],
        ..Config::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let handler = bmc.clone();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        if let Ok(session) = run_stream(config, stream, handler).await {
            let _ = session.await;
        }
    });
    let target = SshTarget {
        host: "127.0.0.1".to_owned(),
        port,
        user: "root".to_owned(),
        password: "wrong".to_owned().into(),
        host_key: None,
        commands: Vec::new(),
    };
    let connection = handshake(&target).await.expect("the server answers");
    let Err(error) = connection.open(&target).await else {
        panic!("the password is wrong");
    };
    assert!(matches!(error, DialError::Refused { .. }), "{error:?}");
    (
        bmc.passwords.load(Ordering::Relaxed),
        bmc.responses.load(Ordering::Relaxed),
    )
}

/// BMCs lock an account after some refused logins.
#[tokio::test]
async fn a_wrong_password_is_tried_once() {
    assert_eq!(
        login(&[MethodKind::Password, MethodKind::KeyboardInteractive]).await,
        (1, 0)
    );
    assert_eq!(login(&[MethodKind::Password]).await, (1, 0));
}

#[tokio::test]
async fn a_server_without_the_method_password_gets_the_password_at_its_prompt() {
    let (_, responses) = login(&[MethodKind::KeyboardInteractive]).await;
    assert_eq!(responses, 1);
}
