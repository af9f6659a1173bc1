//! A way from the computer's own loopback address into the lab's namespace, for browsers.
//!
//! ```text
//! browser ── TCP, 127.0.0.1 ── thread outside ── Unix socket in the lab's folder ── task inside ── TCP ── web console
//! ```

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use tokio::net::UnixListener;

/// The files in the lab's folder.
fn socket(folder: &Path) -> PathBuf {
    folder.join("web.sock")
}

fn address(folder: &Path) -> PathBuf {
    folder.join("web-address")
}

/// Outside: listens on a free port of the loopback address, and hands each connection to the inside, as long as this process
/// lasts. `lab::enter_with` calls it.
///
/// # Errors
/// No port can be listened on, or the folder cannot be written to.
pub fn offer(folder: &Path) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::fs::write(address(folder), format!("https://localhost:{port}"))?;
    let socket = socket(folder);
    thread::spawn(move || {
        for outer in listener.incoming().flatten() {
            // Before the inside listens, and after its end, a browser's connection ends at once.
            if let Ok(inner) = UnixStream::connect(&socket) {
                thread::spawn(move || connect(&outer, &inner));
            }
        }
    });
    Ok(())
}

/// Copies between two connections until both have ended.
fn connect(outer: &TcpStream, inner: &UnixStream) {
    // An error of one side ends the other: both copies return.
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut from, mut to) = (outer, inner);
            let _ = io::copy(&mut from, &mut to);
            let _ = inner.shutdown(Shutdown::Write);
        });
        let (mut from, mut to) = (inner, outer);
        let _ = io::copy(&mut from, &mut to);
        let _ = outer.shutdown(Shutdown::Write);
    });
}

/// Inside: the address of the web console for browsers outside. `None`: it is not offered there.
#[must_use]
pub fn public_url(folder: &Path) -> Option<String> {
    std::fs::read_to_string(address(folder)).ok()
}

/// Inside: connects what comes from outside with a listener. Ends only with an error.
///
/// # Errors
/// The socket cannot be listened on.
pub async fn serve(folder: &Path, target: SocketAddr) -> io::Result<()> {
    let listener = UnixListener::bind(socket(folder))?;
    loop {
        let (mut outer, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Ok(mut inner) = tokio::net::TcpStream::connect(target).await {
                // A connection that one side breaks off is over.
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            }
        });
    }
}
